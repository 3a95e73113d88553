//! The first process inside: it makes the place, runs the program, and brings its results out.

mod results;

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, sethostname};
use pillion_bpf::host::clock::monotonic;

use super::protocol::{Ending, JOB_FILE, Job, Line, RESULTS, Report};
use results::Outflow;

/// Whether this process is the first one of a lab kernel.
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1 && env::args_os().next().is_some_and(|name| name == "/init")
}

/// Does the work of the first process of a lab kernel, and ends the kernel.
pub fn run_as_init() -> ! {
    if let Err(reason) = work() {
        // Shown by the host as the kernel's last words.
        let _ = fs::write("/dev/kmsg", format!("<2>pillion: {reason}"));
    }
    loop {
        // The first process must not end.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

/// Makes the place that programs expect, as the first process of any other kernel that starts
/// from an [`Image`](super::Image): the kernel's file systems, folders to write to, a host name,
/// the loopback device.
///
/// # Errors
/// What failed, in a line.
pub fn make_place() -> Result<(), String> {
    mount_all()?;
    prepare_system()
}

fn work() -> Result<(), String> {
    mount_all()?;
    let reporter = Reporter::start()?;
    let report = match run() {
        Ok(ending) => Report::Ended(ending),
        Err(reason) => Report::Failed(reason),
    };
    reporter.tell(&report)
}

fn run() -> Result<Ending, String> {
    prepare_system()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let results = Outflow::begin();
    let ending = run_program(&job)?;
    results.map_or(Ok(()), Outflow::finish)?;
    Ok(ending)
}

/// File systems, their places and options, and whether a kernel without them will do.
const MOUNTS: [(&str, &str, Option<&str>, bool); 11] = [
    ("proc", "/proc", None, true),
    ("sysfs", "/sys", None, true),
    ("devtmpfs", "/dev", None, true),
    ("devpts", "/dev/pts", Some("ptmxmode=666"), true),
    ("tmpfs", "/tmp", Some("size=90%"), true),
    ("tmpfs", "/run", None, true),
    ("tmpfs", RESULTS, Some("size=90%"), true),
    ("cgroup2", "/sys/fs/cgroup", None, false),
    ("bpf", "/sys/fs/bpf", None, false),
    ("tracefs", "/sys/kernel/tracing", None, false),
    ("debugfs", "/sys/kernel/debug", None, false),
];

/// Mounts the kernel's file systems, and those that hold what is written.
fn mount_all() -> Result<(), String> {
    for (kind, path, options, needed) in MOUNTS {
        // Only /dev/pts is not there yet.
        let _ = fs::create_dir(path);
        match mount(Some(kind), path, Some(kind), MsFlags::empty(), options) {
            Err(Errno::ENODEV | Errno::ENOENT) if !needed => {}
            Err(errno) => return Err(format!("mount {kind} at {path}: {errno}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Limit of open files: as many as thousands of streams take.
const FILES: u64 = 1 << 20;

/// Names the host, and brings up its loopback device.
fn prepare_system() -> Result<(), String> {
    sethostname("pillion").map_err(|errno| format!("set the host's name: {errno}"))?;
    fs::write("/proc/sys/fs/nr_open", FILES.to_string())
        .map_err(|error| format!("allow open files: {error}"))?;
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES)
        .map_err(|errno| format!("allow open files: {errno}"))?;
    let up = Command::new("/bin/ip")
        .args(["link", "set", "lo", "up"])
        .status();
    match up {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ip link set lo up: {status}")),
        Err(error) => Err(format!("ip: {error}")),
    }
}

/// Runs the job's program until it ends, and then ends whatever it left running.
fn run_program(job: &Job) -> Result<Ending, String> {
    let mut child = Command::new(&job.program)
        .args(&job.arguments)
        .env_clear()
        .envs([("PATH", "/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")])
        .envs(&job.environment)
        .current_dir("/tmp")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", job.program))?;
    // Lines directly would be terminals to the program, and change what it writes.
    let copies = [
        pass_on(child.stdout.take(), Line::Output)?,
        pass_on(child.stderr.take(), Line::Errors)?,
    ];
    let over = Arc::new(AtomicBool::new(false));
    if let Some(limit) = job.time_limit {
        stop_after(limit, Arc::clone(&over));
    }
    let status = wait(&child)?;
    end_all();
    for copy in copies {
        let _ = copy.join();
    }
    Ok(if over.load(Ordering::Relaxed) {
        Ending::TimeLimit
    } else {
        status
    })
}

fn pass_on(from: Option<impl Read + Send + 'static>, line: Line) -> Result<JoinHandle<()>, String> {
    let mut to = open(line)?;
    Ok(thread::spawn(move || {
        if let Some(mut from) = from {
            let _ = io::copy(&mut from, &mut to);
        }
    }))
}

fn stop_after(limit: Duration, over: Arc<AtomicBool>) {
    thread::spawn(move || {
        thread::sleep(limit);
        over.store(true, Ordering::Relaxed);
        end_all();
    });
}

/// Ends every process but this one.
fn end_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program, and for orphans meanwhile.
fn wait(child: &Child) -> Result<Ending, String> {
    let child = Pid::from_raw(child.id().cast_signed());
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(process, status)) if process == child => {
                return Ok(Ending::Exited(status));
            }
            Ok(WaitStatus::Signaled(process, signal, _)) if process == child => {
                return Ok(Ending::Killed(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("wait for the program: {errno}")),
        }
    }
}

/// Tells the host how far the work is.
#[derive(Clone)]
pub struct Reporter(Arc<Mutex<File>>);

/// Virtual time between two reports of it: cheap, and the same in every run.
const BEAT: Duration = Duration::from_secs(1);

impl Reporter {
    /// Starts to tell the time.
    pub fn start() -> Result<Self, String> {
        let teller = Self(Arc::new(Mutex::new(open(Line::Reports)?)));
        let beating = teller.clone();
        thread::spawn(move || {
            while beating.tell(&Report::Reached(monotonic())).is_ok() {
                thread::sleep(BEAT);
            }
        });
        Ok(teller)
    }

    /// Sends a report to the host.
    pub fn tell(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).map_err(|error| error.to_string())
    }
}

/// Opens a line to the host, as one that changes nothing of what it carries.
pub fn open(line: Line) -> Result<File, String> {
    let failed = |error: String| format!("{}: {error}", line.device());
    let file = File::options()
        .write(true)
        .open(line.device())
        .map_err(|error| failed(error.to_string()))?;
    let mut manner = tcgetattr(file.as_fd()).map_err(|errno| failed(errno.to_string()))?;
    cfmakeraw(&mut manner);
    tcsetattr(file.as_fd(), SetArg::TCSANOW, &manner).map_err(|errno| failed(errno.to_string()))?;
    Ok(file)
}
