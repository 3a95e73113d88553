//! A lab kernel's process on the host: how it starts, what it prints, how it ends.

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

use super::error::Stall;
use super::protocol::{Line, Report};
use super::{Ending, EngineError, Image, KernelCrash, LabKernel};
use crate::engine::protocol;

/// A lab kernel and what it runs on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel to run.
    pub kernel: LabKernel,
    /// Whether its timers go off when they are due, and not at the next tick.
    pub high_resolution_timers: bool,
    /// The kernel's memory in MiB; image and results live in it.
    pub memory_mib: u32,
    /// Seed of every random number inside, those of the network's losses included.
    pub seed: u64,
    /// The processor core that the kernel runs on, by number; `None` for any. One that moves
    /// between cores is two to three times slower.
    pub core: Option<usize>,
    /// Processor time that the kernel may use while virtual time stands still, at least.
    pub patience: Duration,
    /// Real time that a program may take; `None` for no limit.
    pub limit: Option<Duration>,
}

/// The kernel's option for the date at which it starts: 1 January 2000, in nanoseconds.
const START: &str = "time-travel-start=946684800000000000";

/// The kernel's option that ends it for what it does not warn of in the usual way: bad pages and
/// objects, oopses, sleep where there must be none, lockups (TAINT_BAD_PAGE, _DIE, _WARN and
/// _SOFTLOCKUP).
const TAINTED: &str = "panic_on_taint=42a0";

impl Machine {
    /// Starts the kernel with an image, which holds the job. What the program writes to files in
    /// [`super::RESULTS`] goes to the folder `results`, twice a second of virtual time as far as
    /// it has come, and as it is when the program ends; what it writes to its outputs, to
    /// `output` and `errors` at once.
    ///
    /// The kernel ends with the thread that called this, at the latest.
    ///
    /// # Errors
    /// [`EngineError::System`].
    pub fn start(
        &self,
        image: &Image,
        results: Option<&Path>,
        output: Box<dyn Write + Send>,
        errors: Box<dyn Write + Send>,
    ) -> Result<Running, EngineError> {
        let control =
            tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
        let mut given = vec![
            (image_file(image)?, protocol::IMAGE),
            (folder(control.path())?, protocol::CONTROL),
        ];
        if let Some(results) = results {
            given.push((folder(results)?, protocol::RESULTS_FOLDER));
        }
        let mut read = Vec::new();
        for line in Line::ALL {
            let (from, to) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)
                .map_err(|errno| EngineError::system("make a pipe")(errno.into()))?;
            read.push(File::from(from));
            given.push((to, line.descriptor()));
        }
        let mut command = self.command(results.is_some());
        hand_over(&mut command, given)?;
        self.confine(&mut command);
        let child = command
            .spawn()
            .map_err(EngineError::system("start the lab kernel"))?;
        // Its ends of the pipes are its own from here on.
        drop(command);
        let sinks = [output, errors];
        Ok(Running::follow(self, child, read, sinks, control))
    }

    fn command(&self, results: bool) -> Command {
        let mut command = Command::new(&self.kernel.path);
        command
            .env_clear()
            .env("TMPDIR", memory_folder(self.memory_mib))
            .arg(format!("mem={}M", self.memory_mib))
            .arg(format!("initrd={}", protocol::path(protocol::IMAGE)))
            .arg(format!("uml_dir={}", protocol::path(protocol::CONTROL)))
            .arg("umid=lab")
            .args(["time-travel=inf-cpu", START])
            .arg(format!("pillion.seed={}", self.seed))
            .args(["con=null", "con0=null,fd:2", "console=tty0"])
            .args(Line::ALL.map(Line::option))
            .args(["loglevel=8", "panic=-1", "panic_on_warn=1", TAINTED])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if !self.high_resolution_timers {
            command.arg("highres=off");
        }
        if results {
            command.arg(protocol::WANTED);
        }
        command
    }

    /// Has the kernel's process run on its core, without random addresses, and end with its parent.
    fn confine(&self, command: &mut Command) {
        let mut cores = CpuSet::new();
        let pinned = self.core.is_some_and(|core| cores.set(core).is_ok());
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made.
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
                // There goes what it says before it has a console.
                dup2_stdout(io::stderr())?;
                Ok(())
            });
        }
    }
}

/// Has the child process find open files under their numbers.
fn hand_over(command: &mut Command, given: Vec<(OwnedFd, i32)>) -> Result<(), EngineError> {
    let mut beyond = Vec::new();
    for (file, number) in given {
        // Out of the way of the numbers themselves.
        let file = fcntl(file.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(protocol::BEYOND))
            .map_err(|errno| EngineError::system("duplicate a descriptor")(errno.into()))?;
        beyond.push((own(file), number));
    }
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            for (file, number) in &beyond {
                // SAFETY: in the child, nothing owns descriptors of these numbers.
                let _ = dup2_raw(file, *number)?.into_raw_fd();
            }
            Ok(())
        });
    }
    Ok(())
}

fn own(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// The image in a file without a name.
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

/// The folder where the kernel's memory lies, in a file without a name: in memory where there is
/// room.
fn memory_folder(memory_mib: u32) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let room = statvfs(shared).map(|found| found.blocks_available() * found.fragment_size());
    if room.is_ok_and(|room| room >= u64::from(memory_mib) << 20) {
        shared.to_owned()
    } else {
        env::temp_dir()
    }
}

/// A kernel at work; dropped, it ends.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reports: Receiver<Report>,
    copies: Vec<JoinHandle<()>>,
    console: Console,
    stall: Stall,
    limit: Option<Duration>,
    control: Option<TempDir>,
}

/// Real time between two looks at the flag to stop.
const GLANCE: Duration = Duration::from_millis(100);

impl Running {
    /// Takes charge of a kernel just started; `read` are the host's ends of the lines, `control`
    /// the folder that it wants for itself.
    pub(super) fn follow(
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
            copies.push(thread::spawn(move || console.take_in(messages)));
        }
        if let Some(line) = read.next() {
            copies.push(thread::spawn(move || tell(line, &sender)));
        }
        for (line, sink) in read.zip(sinks) {
            copies.push(thread::spawn(move || pass_on(line, sink)));
        }
        Self {
            child,
            reports,
            copies,
            console,
            stall: Stall::new(machine.patience),
            limit: machine.limit,
            control: Some(control),
        }
    }

    /// What the kernel says; all of it once the program's end was waited for.
    #[must_use]
    pub fn console(&self) -> Console {
        self.console.clone()
    }

    /// Waits for the program's end. `reached` is told how far virtual time has come; the kernel
    /// is stopped when `stop` is set.
    ///
    /// # Errors
    /// [`EngineError::Stalled`], [`EngineError::Late`], [`EngineError::Stopped`],
    /// [`EngineError::Died`] and [`EngineError::Inside`]; nothing runs any more then.
    pub fn wait(
        mut self,
        stop: &AtomicBool,
        mut reached: impl FnMut(Duration),
    ) -> Result<Ending, EngineError> {
        let begun = Instant::now();
        let mut at = Duration::ZERO;
        let mut end = None;
        loop {
            match self.reports.recv_timeout(GLANCE) {
                Ok(Report::Reached(time)) => {
                    // What it made there is of no use: nothing is to be left, however this ends.
                    self.control = None;
                    at = time;
                    self.stall.moved();
                    reached(at);
                }
                Ok(Report::Ended(ending)) => end = Some(Ok(ending)),
                Ok(Report::Failed(reason)) => end = Some(Err(EngineError::Inside(reason))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                return Err(EngineError::Stopped);
            }
            if let Some(waited) = self.stall.found(self.child.id()) {
                return Err(EngineError::Stalled { at, waited });
            }
            if let Some(limit) = self.limit.filter(|limit| begun.elapsed() > *limit) {
                return Err(EngineError::Late { at, limit });
            }
        }
        let signal = self.finish();
        end.unwrap_or_else(|| {
            let breakdown = KernelCrash::find(&self.console.text(), signal);
            Err(EngineError::Died(breakdown))
        })
    }

    /// Waits until the kernel is gone and all that was written is passed on. Returns the signal
    /// that ended it, if one did.
    fn finish(&mut self) -> Option<i32> {
        let status = self.child.wait();
        for copy in self.copies.drain(..) {
            let _ = copy.join();
        }
        status.ok().and_then(|status| status.signal())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The processes inside are the kernel's children on the host, and end with it.
        let _ = self.child.kill();
        self.finish();
    }
}

fn tell(line: File, sender: &Sender<Report>) {
    for text in BufReader::new(line).lines().map_while(Result::ok) {
        // A line cut short by the kernel's end is none.
        if let Ok(report) = serde_json::from_str(&text)
            && sender.send(report).is_err()
        {
            return;
        }
    }
}

fn pass_on(mut line: File, mut sink: Box<dyn Write + Send>) {
    let mut buffer = [0; 1 << 16];
    while let Ok(read) = retry(|| line.read(&mut buffer)) {
        // Where nobody listens any more, the program inside need not know.
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

/// All that a kernel says, from its start on.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Mutex<VecDeque<u8>>>);

/// Bytes of the kernel's messages that are kept, the last ones: a kernel that warns without end is
/// not to fill the host's memory.
const KEPT: usize = 1 << 24;

impl Console {
    /// Takes messages in until they end. `PILLION_LOG=kernel` in the environment shows them as
    /// well.
    fn take_in(&self, mut messages: impl Read) {
        let shown = std::env::var_os("PILLION_LOG").is_some_and(|wanted| wanted == "kernel");
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = retry(|| messages.read(&mut buffer)) {
            if shown {
                let _ = io::stderr().write_all(&buffer[..read]);
            }
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            said.extend(&buffer[..read]);
            let excess = said.len().saturating_sub(KEPT);
            said.drain(..excess);
        }
    }

    /// What the kernel has said so far.
    #[must_use]
    pub fn text(&self) -> String {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(said.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_much_the_end_is_kept() {
        let console = Console::default();
        console.take_in(&b"first "[..]);
        assert_eq!(console.text(), "first ");
        console.take_in(io::repeat(b'.').take(KEPT as u64));
        console.take_in(&b"last"[..]);
        let text = console.text();
        assert_eq!(text.len(), KEPT);
        assert!(text.starts_with("..") && text.ends_with(".last"));
    }
}
