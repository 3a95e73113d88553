//! A lab kernel's process on the host: start, output and exit.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, dup2_raw, dup2_stdout, pipe2};
use pillion_bpf::host::interruption::retry;
use tempfile::TempDir;

use super::error::StallDetector;
use super::protocol::{ConsoleLine, Report};
use super::{EngineError, Image, KernelCrash, LabKernel, ProgramExit};
use crate::engine::protocol;

/// A lab kernel and the machine that it runs on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel to run.
    pub kernel: LabKernel,
    /// Whether timers expire exactly when due, instead of at the next tick.
    pub high_resolution_timers: bool,
    /// The kernel's memory in MiB; image and results live in it.
    pub memory_mib: u32,
    /// Seed of every random number inside, including the network's losses.
    pub seed: u64,
    /// Number of the processor core to run on; `None` for any. A kernel that moves between cores is
    /// two to three times slower.
    pub core: Option<usize>,
    /// Processor time that the kernel may use while virtual time does not advance, at least.
    pub stall_timeout: Duration,
    /// Maximum real time of a program; `None` for no limit.
    pub limit: Option<Duration>,
}

/// Kernel option with the start date: 1 January 2000, in nanoseconds.
const START_DATE: &str = "time-travel-start=946684800000000000";

/// Kernel option that stops the kernel at faults without an ordinary warning: bad pages and
/// objects, oopses, sleep in atomic context, lockups (TAINT_BAD_PAGE, _DIE, _WARN and _SOFTLOCKUP).
const PANIC_ON_TAINT: &str = "panic_on_taint=42a0";

impl Machine {
    /// Starts the kernel with an image that contains the job. Files that the program writes to
    /// [`super::RESULTS`] are copied to the folder `results`: twice per second of virtual time, and
    /// again when the program exits. Its standard output and error go to `output` and `errors`
    /// immediately.
    ///
    /// The kernel exits with the calling thread, at the latest.
    ///
    /// # Errors
    /// [`EngineError::System`].
    pub fn start(
        &self,
        image: &Image,
        results: Option<&Path>,
        output: Box<dyn Write + Send>,
        errors: Box<dyn Write + Send>,
    ) -> Result<RunningKernel, EngineError> {
        let control =
            tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
        let mut inherited = vec![
            (image_file(image)?, protocol::IMAGE_FD),
            (folder(control.path())?, protocol::CONTROL_FD),
        ];
        if let Some(results) = results {
            inherited.push((folder(results)?, protocol::RESULTS_FD));
        }
        let mut read = Vec::new();
        for line in ConsoleLine::ALL {
            let (from, to) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)
                .map_err(|errno| EngineError::system("make a pipe")(errno.into()))?;
            read.push(File::from(from));
            inherited.push((to, line.descriptor()));
        }
        let mut command = self.command(results.is_some());
        pass_descriptors(&mut command, inherited)?;
        self.confine(&mut command);
        let child = command
            .spawn()
            .map_err(EngineError::system("start the lab kernel"))?;
        // Only the child may hold its ends of the pipes.
        drop(command);
        let sinks = [output, errors];
        Ok(RunningKernel::new(self, child, read, sinks, control))
    }

    fn command(&self, results: bool) -> Command {
        let mut command = Command::new(&self.kernel.path);
        command
            .env_clear()
            .env("TMPDIR", memory_folder(self.memory_mib))
            .arg(format!("mem={}M", self.memory_mib))
            .arg(format!("initrd={}", protocol::path(protocol::IMAGE_FD)))
            .arg(format!("uml_dir={}", protocol::path(protocol::CONTROL_FD)))
            .arg("umid=lab")
            .args(["time-travel=inf-cpu", START_DATE])
            .arg(format!("pillion.seed={}", self.seed))
            .args(["con=null", "con0=null,fd:2", "console=tty0"])
            .args(ConsoleLine::ALL.map(ConsoleLine::option))
            .args(["loglevel=8", "panic=-1", "panic_on_warn=1", PANIC_ON_TAINT])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if !self.high_resolution_timers {
            command.arg("highres=off");
        }
        if results {
            command.arg(protocol::COPY_RESULTS_FLAG);
        }
        command
    }

    /// Makes the kernel's process run on its core, without address randomisation, and exit with its
    /// parent.
    fn confine(&self, command: &mut Command) {
        let mut cores = CpuSet::new();
        let pinned = self.core.is_some_and(|core| cores.set(core).is_ok());
        let parent = std::process::id();
        // SAFETY: between fork and exec, the closure makes only system calls.
        unsafe {
            command.pre_exec(move || {
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                if parent_id() != parent {
                    return Err(io::Error::other("the parent is gone"));
                }
                if pinned {
                    sched_setaffinity(Pid::from_raw(0), &cores)?;
                }
                personality::set(personality::get()? | Persona::ADDR_NO_RANDOMIZE)?;
                // Receives the kernel's messages before it has a console.
                dup2_stdout(io::stderr())?;
                Ok(())
            });
        }
    }
}

/// Passes open files to the child process under fixed numbers.
fn pass_descriptors(
    command: &mut Command,
    inherited: Vec<(OwnedFd, i32)>,
) -> Result<(), EngineError> {
    let mut duplicates = Vec::new();
    for (file, number) in inherited {
        // Keep the fixed numbers free.
        let file = fcntl(
            file.as_fd(),
            FcntlArg::F_DUPFD_CLOEXEC(protocol::FIRST_FREE_FD),
        )
        .map_err(|errno| EngineError::system("duplicate a descriptor")(errno.into()))?;
        duplicates.push((owned_fd(file), number));
    }
    // SAFETY: between fork and exec, the closure makes only system calls.
    unsafe {
        command.pre_exec(move || {
            for (file, number) in &duplicates {
                // SAFETY: in the child, no value owns descriptors with these numbers.
                let _ = dup2_raw(file, *number)?.into_raw_fd();
            }
            Ok(())
        });
    }
    Ok(())
}

fn owned_fd(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just created the descriptor, and no other value owns it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Writes the image to a file without a name.
fn image_file(image: &Image) -> Result<OwnedFd, EngineError> {
    let action = "write the image";
    let file = memfd_create(c"pillion-image", MFdFlags::MFD_CLOEXEC)
        .map_err(|errno| EngineError::system(action)(errno.into()))?;
    let mut file = File::from(file);
    image
        .write(&mut file)
        .map_err(EngineError::system(action))?;
    Ok(file.into())
}

fn folder(path: &Path) -> Result<OwnedFd, EngineError> {
    let open = File::open(path).map_err(EngineError::system("open a folder for the lab kernel"))?;
    Ok(open.into())
}

/// Returns the folder for the file with the kernel's memory: in memory if there is room.
fn memory_folder(memory_mib: u32) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let free = statvfs(shared).map(|stats| stats.blocks_available() * stats.fragment_size());
    if free.is_ok_and(|free| free >= u64::from(memory_mib) << 20) {
        shared.to_owned()
    } else {
        env::temp_dir()
    }
}

/// A running kernel; dropping it kills the kernel.
#[derive(Debug)]
pub struct RunningKernel {
    child: Child,
    reports: Receiver<Report>,
    copies: Vec<JoinHandle<()>>,
    console: Console,
    stall: StallDetector,
    limit: Option<Duration>,
    control: Option<TempDir>,
}

/// Real time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl RunningKernel {
    /// Takes over a kernel that was just started. `read` are the host's ends of the consoles,
    /// `control` is the kernel's control folder.
    pub(super) fn new(
        machine: &Machine,
        mut child: Child,
        read: Vec<File>,
        sinks: [Box<dyn Write + Send>; 2],
        control: TempDir,
    ) -> Self {
        let (sender, reports) = channel();
        let mut read = read.into_iter();
        let mut copies = Vec::new();
        let console = Console::default();
        if let Some(messages) = child.stderr.take() {
            let console = console.clone();
            copies.push(thread::spawn(move || console.record(messages)));
        }
        if let Some(line) = read.next() {
            copies.push(thread::spawn(move || read_reports(line, &sender)));
        }
        for (line, sink) in read.zip(sinks) {
            copies.push(thread::spawn(move || forward_output(line, sink)));
        }
        Self {
            child,
            reports,
            copies,
            console,
            stall: StallDetector::new(machine.stall_timeout),
            limit: machine.limit,
            control: Some(control),
        }
    }

    /// Returns the kernel's messages; they are complete once the program has exited.
    #[must_use]
    pub fn console(&self) -> Console {
        self.console.clone()
    }

    /// Waits for the program's exit. Calls `on_progress` with the virtual time, and stops the
    /// kernel when `stop` is set.
    ///
    /// # Errors
    /// [`EngineError::Stalled`], [`EngineError::TimedOut`], [`EngineError::Stopped`],
    /// [`EngineError::Crashed`] and [`EngineError::GuestFailed`]; the kernel no longer runs then.
    pub fn wait(
        mut self,
        stop: &AtomicBool,
        mut on_progress: impl FnMut(Duration),
    ) -> Result<ProgramExit, EngineError> {
        let started = Instant::now();
        let mut at = Duration::ZERO;
        let mut end = None;
        loop {
            match self.reports.recv_timeout(POLL_INTERVAL) {
                Ok(Report::VirtualTime(time)) => {
                    // The control folder is no longer needed. Remove it now, so that nothing
                    // remains after any exit.
                    self.control = None;
                    at = time;
                    self.stall.record_progress();
                    on_progress(at);
                }
                Ok(Report::Exited(ending)) => end = Some(Ok(ending)),
                Ok(Report::Failed(reason)) => end = Some(Err(EngineError::GuestFailed(reason))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                return Err(EngineError::Stopped);
            }
            if let Some(stalled_for) = self.stall.check(self.child.id()) {
                return Err(EngineError::Stalled { at, stalled_for });
            }
            if let Some(limit) = self.limit.filter(|limit| started.elapsed() > *limit) {
                return Err(EngineError::TimedOut { at, limit });
            }
        }
        let signal = self.finish();
        end.unwrap_or_else(|| {
            let crash = KernelCrash::find(&self.console.text(), signal);
            Err(EngineError::Crashed(crash))
        })
    }

    /// Waits until the kernel has exited and its output is forwarded. Returns the signal that
    /// killed it, if any.
    fn finish(&mut self) -> Option<i32> {
        let status = self.child.wait();
        for copy in self.copies.drain(..) {
            let _ = copy.join();
        }
        status.ok().and_then(|status| status.signal())
    }
}

impl Drop for RunningKernel {
    fn drop(&mut self) {
        // The processes inside are the kernel's children on the host, and exit with it.
        let _ = self.child.kill();
        self.finish();
    }
}

fn read_reports(line: File, sender: &Sender<Report>) {
    for text in BufReader::new(line).lines().map_while(Result::ok) {
        // Ignores a line cut off by the kernel's exit.
        if let Ok(report) = serde_json::from_str(&text)
            && sender.send(report).is_err()
        {
            return;
        }
    }
}

fn forward_output(mut line: File, mut sink: Box<dyn Write + Send>) {
    let mut buffer = [0; 1 << 16];
    while let Ok(read) = retry(|| line.read(&mut buffer)) {
        // If the host's reader is gone, the program inside need not know.
        if read == 0
            || sink
                .write_all(&buffer[..read])
                .and_then(|()| sink.flush())
                .is_err()
        {
            break;
        }
    }
    let _ = io::copy(&mut line, &mut io::sink());
}

/// All messages of a kernel, from its start.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Mutex<VecDeque<u8>>>);

/// Maximum bytes of stored messages; the oldest are dropped. Limits the memory of a kernel that
/// warns without end.
const MAX_CONSOLE_BYTES: usize = 1 << 24;

impl Console {
    /// Stores messages until they end. Also prints them if the environment has
    /// `PILLION_LOG=kernel`.
    fn record(&self, mut messages: impl Read) {
        let echo = std::env::var_os("PILLION_LOG").is_some_and(|requested| requested == "kernel");
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = retry(|| messages.read(&mut buffer)) {
            if echo {
                let _ = io::stderr().write_all(&buffer[..read]);
            }
            let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            log.extend(&buffer[..read]);
            let excess = log.len().saturating_sub(MAX_CONSOLE_BYTES);
            log.drain(..excess);
        }
    }

    /// Returns the kernel's messages so far.
    #[must_use]
    pub fn text(&self) -> String {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(log.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_keeps_last_bytes() {
        let console = Console::default();
        console.record(&b"first "[..]);
        assert_eq!(console.text(), "first ");
        console.record(io::repeat(b'.').take(MAX_CONSOLE_BYTES as u64));
        console.record(&b"last"[..]);
        let text = console.text();
        assert_eq!(text.len(), MAX_CONSOLE_BYTES);
        assert!(text.starts_with("..") && text.ends_with(".last"));
    }
}
