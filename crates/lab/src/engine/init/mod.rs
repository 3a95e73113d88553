//! The first process inside the kernel: prepares the system, runs the program, and copies its
//! results out.

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

use super::protocol::{ConsoleLine, JOB_FILE, Job, ProgramExit, RESULTS, Report};
use results::ResultsCopier;

/// Returns true if this process is the first one of a lab kernel.
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1 && env::args_os().next().is_some_and(|name| name == "/init")
}

/// Works as first process of a lab kernel, then powers the kernel off.
pub fn run_as_init() -> ! {
    if let Err(reason) = run_init() {
        // The host shows this as the kernel's last message.
        let _ = fs::write("/dev/kmsg", format!("<2>pillion: {reason}"));
    }
    loop {
        // The first process must not exit.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

/// Prepares the system for programs: mounts file systems, sets the host name and brings up the
/// loopback device. Also for the first process of other kernels that boot from an
/// [`Image`](super::Image).
///
/// # Errors
/// The error in one line.
pub fn prepare_guest() -> Result<(), String> {
    mount_all()?;
    prepare_system()
}

fn run_init() -> Result<(), String> {
    mount_all()?;
    let reporter = Reporter::start()?;
    let report = match run_job() {
        Ok(ending) => Report::Exited(ending),
        Err(reason) => Report::Failed(reason),
    };
    reporter.report(&report)
}

fn run_job() -> Result<ProgramExit, String> {
    prepare_system()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let results = ResultsCopier::start();
    let ending = run_program(&job)?;
    results.map_or(Ok(()), ResultsCopier::finish)?;
    Ok(ending)
}

/// File system types, mount points, options, and whether the file system is required.
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

/// Mounts the kernel's file systems, and tmpfs for written files.
fn mount_all() -> Result<(), String> {
    for (kind, path, options, needed) in MOUNTS {
        // Only /dev/pts does not exist yet.
        let _ = fs::create_dir(path);
        match mount(Some(kind), path, Some(kind), MsFlags::empty(), options) {
            Err(Errno::ENODEV | Errno::ENOENT) if !needed => {}
            Err(errno) => return Err(format!("mount {kind} at {path}: {errno}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Limit of open files, enough for thousands of streams.
const FILES: u64 = 1 << 20;

/// Sets the host name and the limit of open files, and brings up the loopback device.
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

/// Runs the job's program until it exits, then kills all remaining processes.
fn run_program(job: &Job) -> Result<ProgramExit, String> {
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
    // A console as output would be a terminal to the program and change its output format.
    let copies = [
        forward(child.stdout.take(), ConsoleLine::Output)?,
        forward(child.stderr.take(), ConsoleLine::Errors)?,
    ];
    let timed_out = Arc::new(AtomicBool::new(false));
    if let Some(limit) = job.time_limit {
        kill_after(limit, Arc::clone(&timed_out));
    }
    let status = wait(&child)?;
    kill_all();
    for copy in copies {
        let _ = copy.join();
    }
    Ok(if timed_out.load(Ordering::Relaxed) {
        ProgramExit::TimeLimit
    } else {
        status
    })
}

fn forward(
    from: Option<impl Read + Send + 'static>,
    line: ConsoleLine,
) -> Result<JoinHandle<()>, String> {
    let mut to = open_line(line)?;
    Ok(thread::spawn(move || {
        if let Some(mut from) = from {
            let _ = io::copy(&mut from, &mut to);
        }
    }))
}

fn kill_after(limit: Duration, timed_out: Arc<AtomicBool>) {
    thread::spawn(move || {
        thread::sleep(limit);
        timed_out.store(true, Ordering::Relaxed);
        kill_all();
    });
}

/// Kills every process except this one.
fn kill_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program, and reaps orphans meanwhile.
fn wait(child: &Child) -> Result<ProgramExit, String> {
    let child = Pid::from_raw(child.id().cast_signed());
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(process, status)) if process == child => {
                return Ok(ProgramExit::Exited(status));
            }
            Ok(WaitStatus::Signaled(process, signal, _)) if process == child => {
                return Ok(ProgramExit::Killed(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("wait for the program: {errno}")),
        }
    }
}

/// Sends reports to the host.
#[derive(Clone)]
pub struct Reporter(Arc<Mutex<File>>);

/// Virtual time between two reports of it: cheap, and equal in every run.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

impl Reporter {
    /// Starts to report the virtual time.
    pub fn start() -> Result<Self, String> {
        let reporter = Self(Arc::new(Mutex::new(open_line(ConsoleLine::Reports)?)));
        let heartbeat = reporter.clone();
        thread::spawn(move || {
            while heartbeat.report(&Report::VirtualTime(monotonic())).is_ok() {
                thread::sleep(REPORT_INTERVAL);
            }
        });
        Ok(reporter)
    }

    /// Sends a report to the host.
    pub fn report(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).map_err(|error| error.to_string())
    }
}

/// Opens a console to the host in raw mode, so that it does not change the data.
pub fn open_line(line: ConsoleLine) -> Result<File, String> {
    let failed = |error: String| format!("{}: {error}", line.device());
    let file = File::options()
        .write(true)
        .open(line.device())
        .map_err(|error| failed(error.to_string()))?;
    let mut termios = tcgetattr(file.as_fd()).map_err(|errno| failed(errno.to_string()))?;
    cfmakeraw(&mut termios);
    tcsetattr(file.as_fd(), SetArg::TCSANOW, &termios)
        .map_err(|errno| failed(errno.to_string()))?;
    Ok(file)
}
