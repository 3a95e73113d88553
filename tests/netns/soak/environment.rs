//! Environment of the soak: two hosts with a lossy path, cgroups whose outermost one is the root
//! for pillion, the shared context, and the endpoint processes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_lab::path::{Direction, Disorder, Loss, PathConfig};
use pillion_tests::HostPair;

use super::endpoint::{ClientTask, TIMEOUT, endpoint_command, set_task};
use super::events::EndpointEvent;
use super::instance::{Instance, InstanceConfig, InstanceResult};
use super::memory::KernelMemory;
use super::plan::Side;
use crate::common::own_cgroup;

pub struct Environment {
    pub pair: HostPair,
    pub kernel_memory: KernelMemory,
    mount: PathBuf,
    top: PathBuf,
}

/// Cgroup for one process of the soak.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

/// Returns a path with losses in runs and single losses, reordered and duplicated packets.
fn path(seed: u64) -> PathConfig {
    let direction = |in_good| Direction {
        jitter: Duration::from_millis(1),
        rate_bps: Some(50_000_000),
        queue_packets: 500,
        loss: Loss::GilbertElliott {
            to_bad: 0.005,
            to_good: 0.3,
            in_bad: 0.5,
            in_good,
        },
        disorder: Some(Disorder {
            reorder: 0.002,
            duplicate: 0.002,
            late: Duration::from_millis(15),
        }),
        ..Direction::delayed(Duration::from_millis(20))
    };
    PathConfig {
        forward: direction(0.03),
        backward: direction(0.01),
        seed,
    }
}

impl Environment {
    pub fn create(seed: u64) -> io::Result<Self> {
        let pair = HostPair::create(&path(seed));
        let mount = pillion_bpf::cgroup2_mount().map_err(io::Error::other)?;
        let name = format!("soak-{}", std::process::id());
        let top = own_cgroup().join(&name);
        fs::create_dir(&top)?;
        Ok(Self {
            pair,
            kernel_memory: KernelMemory::create(&top, &name)?,
            mount,
            top,
        })
    }

    pub fn cgroup(&self, name: &str) -> io::Result<Cgroup> {
        let path = self.top.join(name);
        fs::create_dir(&path)?;
        Ok(Cgroup(path))
    }

    /// Builds a command on a host and in a cgroup.
    pub fn command(&self, host: &Namespace, cgroup: &Cgroup, words: &[String]) -> Command {
        let procs_files = [Some(cgroup.procs_file()), self.kernel_memory.procs_file()];
        let mut command = host.command(&words[0]);
        command.args(&words[1..]);
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || enter(&procs_files)) };
        command
    }

    /// Builds a command in a cgroup, with the soak's outermost cgroup mounted as the root.
    pub fn isolated_command(&self, host: &Namespace, cgroup: &Cgroup, words: &[String]) -> Command {
        let outermost = [Some(Cgroup(self.top.clone()).procs_file())];
        let procs_files = [Some(cgroup.procs_file()), self.kernel_memory.procs_file()];
        let root = self.mount.clone();
        let mut command = host.command(&words[0]);
        command.args(&words[1..]);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                enter(&outermost)?;
                unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)?;
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
                // A file system cannot be mounted over itself.
                umount2(&root, MntFlags::MNT_DETACH)?;
                let (kind, none) = (Some("cgroup2"), None::<&str>);
                mount(kind, &root, kind, MsFlags::empty(), none)?;
                enter(&procs_files)
            });
        }
        command
    }

    /// Kills all processes and removes all cgroups, also after failures.
    pub fn remove_all(&self) {
        fn remove(cgroup: &Path) {
            child_cgroups(cgroup).iter().for_each(|inner| remove(inner));
            let _ = fs::remove_dir(cgroup);
        }
        let started = Instant::now();
        while self.top.exists() && started.elapsed() < TIMEOUT {
            let _ = fs::write(self.top.join("cgroup.kill"), "1");
            remove(&self.top);
            thread::sleep(Duration::from_millis(20));
        }
        self.kernel_memory.remove();
    }
}

fn enter(procs_files: &[Option<io::Result<File>>]) -> io::Result<()> {
    for procs_file in procs_files.iter().flatten() {
        match procs_file {
            Ok(procs_file) => (&mut &*procs_file).write_all(b"0")?,
            Err(error) => return Err(error.kind().into()),
        }
    }
    Ok(())
}

impl Cgroup {
    fn procs_file(&self) -> io::Result<File> {
        procs_file(&self.0)
    }

    /// Removes the cgroup once it has no process and no child cgroup.
    pub fn remove(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            match fs::remove_dir(&self.0) {
                Ok(()) => return Ok(()),
                // Stalled connections report themselves before this time.
                Err(error) if started.elapsed() > 5 * TIMEOUT => {
                    let remaining = self.remaining();
                    return Err(format!("{}: {error}: {remaining}", self.0.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn remaining(&self) -> String {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let processes: Vec<_> = processes.lines().map(process_label).collect();
        let child_cgroups = child_cgroups(&self.0);
        format!("remaining processes {processes:?} and cgroups {child_cgroups:?}")
    }
}

fn process_label(process: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("{process} {}", name.trim_end())
}

fn child_cgroups(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Opens the file to which a process writes `0` to join the cgroup.
pub fn procs_file(cgroup: &Path) -> io::Result<File> {
    let file = cgroup.join("cgroup.procs");
    OpenOptions::new().write(true).open(file)
}

/// Event reported to the main thread of the soak.
#[derive(Debug)]
pub enum Event {
    /// An endpoint reports an event.
    Endpoint(EndpointEvent),
    /// A pillion is attached: its PID.
    Attached(u32),
    /// A pillion has exited and left nothing behind, or has violated an invariant.
    Ended(Result<InstanceResult, String>),
}

#[derive(Clone)]
pub struct Context {
    pub environment: Arc<Environment>,
    events: Sender<Event>,
    is_stopped: Arc<AtomicBool>,
}

impl Context {
    pub fn new(environment: Environment, events: Sender<Event>) -> Self {
        Self {
            environment: Arc::new(environment),
            events,
            is_stopped: Arc::default(),
        }
    }

    pub fn send(&self, event: Event) {
        // The receiver is gone after a failure.
        let _ = self.events.send(event);
    }

    /// Makes all pillions stop, however much of their time is left.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Forwards the events of an endpoint until it exits, and all its lines to `lines`.
    pub fn forward_events(
        &self,
        from: impl Read + Send + 'static,
        lines: Sender<String>,
    ) -> JoinHandle<()> {
        let context = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Ok(event) = line.parse() {
                    context.send(Event::Endpoint(event));
                }
                let _ = lines.send(line);
            }
        })
    }

    pub fn start_instance(&self, config: InstanceConfig, number: u64) -> JoinHandle<()> {
        let context = self.clone();
        thread::spawn(move || {
            let result = Instance::run(&context, &config, number);
            context.send(Event::Ended(result));
        })
    }
}

/// Server or long-lived client process of the soak.
pub struct EndpointProcess {
    name: &'static str,
    cgroup: Cgroup,
    process: Child,
    lines: Receiver<String>,
    reader: JoinHandle<()>,
}

impl EndpointProcess {
    pub fn server(context: &Context) -> Result<Self, String> {
        let server = Self::spawn(context, "server", Side::Server, None);
        let server = server.map_err(|error| format!("server: {error}"))?;
        let mut lines = server.lines.iter();
        match lines.find(|line| line == "soak: listening") {
            Some(_) => Ok(server),
            None => Err("server: does not listen".to_owned()),
        }
    }

    pub fn client(context: &Context, name: &'static str, task: ClientTask) -> Result<Self, String> {
        let client = Self::spawn(context, name, Side::Client, Some(task));
        client.map_err(|error| format!("client {name}: {error}"))
    }

    fn spawn(
        context: &Context,
        name: &'static str,
        side: Side,
        task: Option<ClientTask>,
    ) -> io::Result<Self> {
        let cgroup = context.environment.cgroup(name)?;
        let (host, end) = match side {
            Side::Client => (&context.environment.pair.sender.namespace, "client_process"),
            Side::Server => (
                &context.environment.pair.receiver.namespace,
                "server_process",
            ),
        };
        let mut command = context
            .environment
            .command(host, &cgroup, &endpoint_command(end));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(task) = task {
            set_task(&mut command, task);
        }
        let mut process = command.spawn()?;
        let (sender, lines) = channel();
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            name,
            cgroup,
            process,
            lines,
            reader: context.forward_events(stdout, sender),
        })
    }

    pub fn check(&mut self) -> Result<(), String> {
        self.lines.try_iter().for_each(drop);
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("{} exited unexpectedly: {ended:?}", self.name)),
        }
    }

    /// Stops the process with SIGTERM and removes its cgroup.
    pub fn stop(mut self) -> Result<(), String> {
        let name = self.name;
        let failed = |what: String| format!("{name}: {what}");
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGTERM).map_err(|errno| failed(errno.to_string()))?;
        let started = Instant::now();
        let status = loop {
            let status = self.process.try_wait();
            match status.map_err(|error| failed(error.to_string()))? {
                Some(status) => break status,
                None if started.elapsed() > 2 * TIMEOUT => {
                    return Err(failed("does not exit".to_owned()));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = self.reader.join();
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        self.cgroup.remove()
    }
}
