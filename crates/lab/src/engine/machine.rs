use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, dup2_raw, dup2_stdout, pipe2};

use super::lines::{self, Line};
use super::{EngineError, Image, LabKernel, Running};

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
            (image_file(image)?, lines::IMAGE),
            (folder(control.path())?, lines::CONTROL),
        ];
        if let Some(results) = results {
            given.push((folder(results)?, lines::RESULTS));
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
            .arg(format!("initrd={}", lines::path(lines::IMAGE)))
            .arg(format!("uml_dir={}", lines::path(lines::CONTROL)))
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
            command.arg(lines::WANTED);
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
        let file = fcntl(file.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(lines::BEYOND))
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
