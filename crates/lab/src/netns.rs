use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use pillion_bpf::host::network_namespace;

/// A network namespace without a name: it exists as long as something refers to it, and
/// so is gone when this process is, however it ends.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes an empty namespace: it has a loopback device alone, and that is down.
    ///
    /// # Errors
    /// The kernel's, EPERM without CAP_SYS_ADMIN.
    pub fn create() -> io::Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
        });
        let fd = made
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread failed")))?;
        Ok(Self(Arc::new(fd)))
    }

    /// The path of a file that refers to the namespace, as long as this process lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Starts a thread inside the namespace.
    ///
    /// # Errors
    /// The kernel's, of entering the namespace, from the thread's result.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<io::Result<T>> {
        let namespace = self.clone();
        thread::spawn(move || {
            network_namespace::join(&namespace.0)?;
            Ok(work())
        })
    }

    /// Runs `work` inside the namespace and waits for its result.
    ///
    /// # Errors
    /// The kernel's, of entering the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        network_namespace::enter(&self.0, work)
    }

    /// Runs a command inside the namespace to its end, with `input` to read.
    ///
    /// # Errors
    /// The kernel's, of entering the namespace and of starting the command.
    pub fn run(&self, program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(match input {
            "" => Stdio::null(),
            _ => Stdio::piped(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        // A thread enters, not the child between fork and exec: so no memory needs copying.
        self.enter(move || {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // One that ends early says why.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?
    }

    /// A command that will run inside the namespace, and be asked to end (SIGTERM) when the thread
    /// that starts it ends.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let namespace = self.clone();
        let mut command = Command::new(program);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                network_namespace::join(&namespace.0)?;
                nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
                Ok(())
            });
        }
        command
    }
}
