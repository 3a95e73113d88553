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

/// An unnamed network namespace. It exists as long as something refers to it, so it disappears with
/// this process in any case.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Creates a namespace with only a loopback device, which is down.
    ///
    /// # Errors
    ///
    /// The kernel's, such as EPERM without CAP_SYS_ADMIN.
    pub fn create() -> io::Result<Self> {
        let thread = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
        });
        let fd = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread failed")))?;
        Ok(Self(Arc::new(fd)))
    }

    /// Returns the path of a file that refers to the namespace while this process runs.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Starts a thread inside the namespace.
    ///
    /// # Errors
    ///
    /// The thread's result has the kernel's error if it cannot enter the namespace.
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

    /// Runs `work` inside the namespace, and waits for its result.
    ///
    /// # Errors
    ///
    /// The kernel's, if the namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        network_namespace::enter(&self.0, work)
    }

    /// Runs a command inside the namespace until it exits, with `input` as its standard input.
    ///
    /// # Errors
    ///
    /// The kernel's, if the namespace cannot be entered or the command cannot be started.
    pub fn run(&self, program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(match input {
            "" => Stdio::null(),
            _ => Stdio::piped(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        // A thread enters the namespace, not the child between fork and exec, so that no memory is
        // copied.
        self.enter(move || {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // A command that exits early reports its reason itself.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?
    }

    /// Returns a command that will run inside the namespace. It receives SIGTERM when the thread
    /// that starts it exits.
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
