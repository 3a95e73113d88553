//! Container engines of the tests: daemons that do not outlive a test, and streams that containers
//! send.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_tests::HostPair;
use serde_json::Value;

use super::{Cgroups, EngineHost};
use crate::common::*;
use crate::namespaces::Sleeper;

/// Daemon in its own mount and PID namespaces. Its containers and mounts end with it or with the
/// test's thread, however these end.
pub struct Daemon {
    process: Child,
    log: PathBuf,
    /// Unique name of the cgroup for the containers.
    pub cgroup: String,
}

impl Daemon {
    pub fn start(
        host: &EngineHost,
        cgroups: Cgroups,
        namespace: &Namespace,
        words: &[&str],
    ) -> Self {
        let log = host.path().join("daemon.log");
        let mut unshare = namespace.command("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["sh", "-c", &host.script(cgroups), "sh"]);
        unshare.args(words);
        unshare.stdout(fs::File::create(&log).unwrap());
        unshare.stderr(fs::File::options().append(true).open(&log).unwrap());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            // `unshare` does not exit on gentler signals.
            unshare.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
        }
        Self {
            process: unshare.spawn().unwrap(),
            log,
            cgroup: cgroup_of(host),
        }
    }

    /// Waits until the daemon answers; false if it exits first or takes too long.
    pub fn wait_until_ready(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        const LIMIT: Duration = Duration::from_secs(30);
        let started = Instant::now();
        while started.elapsed() < LIMIT && self.process.try_wait().unwrap().is_none() {
            if is_ready() {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// Returns the last line of its log.
    pub fn last_log_line(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        const LIMIT: Duration = Duration::from_secs(10);
        // Kill the PID namespace's first process, which takes all others with it; then `unshare`
        // exits.
        let pid = self.process.id();
        let first = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        match first.ok().and_then(|it| it.trim().parse().ok()) {
            Some(first) => drop(kill(Pid::from_raw(first), Signal::SIGKILL)),
            None => drop(self.process.kill()),
        }
        let _ = self.process.wait();
        let started = Instant::now();
        let exists = |mount: &PathBuf| mount.join(&self.cgroup).exists();
        for mount in cgroup_mounts().into_iter().filter(exists) {
            let cgroup = mount.join(&self.cgroup);
            // The cgroup's processes may still be exiting.
            while !remove(&cgroup) && started.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Returns the name of the cgroup for containers of an environment.
pub fn cgroup_of(host: &EngineHost) -> String {
    let unique = host.path().file_name().unwrap().to_string_lossy();
    format!("containers{unique}")
}

/// Returns the mount points of all cgroup hierarchies, of both versions.
fn cgroup_mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let is_cgroups = words.get(2)?.starts_with("cgroup");
        is_cgroups.then(|| PathBuf::from(words[1]))
    });
    mounts.collect()
}

fn remove(cgroup: &Path) -> bool {
    let inner = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for folder in inner.filter(|it| it.path().is_dir()) {
        remove(&folder.path());
    }
    fs::remove_dir(cgroup).is_ok()
}

/// Folders of this host's programs and their libraries.
pub const PROGRAMS: [&str; 4] = ["/usr", "/bin", "/lib", "/lib64"];

/// Command that sends a thin stream to the receiver of a [`Stream`].
pub const SEND: [&str; 9] = [
    "/pillion-lab",
    "traffic",
    "send",
    "--to",
    "10.77.0.2:7777",
    "--itt",
    "10ms",
    "--duration",
    "60s",
];

/// Creates a root folder for containers. This host's programs are mounted there, so no image is
/// needed.
pub fn container_root(parent: &Path) -> PathBuf {
    let root = parent.join("root");
    for folder in [
        "bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "var",
    ] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    root
}

/// Returns the `--volume` options for these programs and for pillion.
pub fn volumes() -> Vec<String> {
    let programs = PROGRAMS.map(|it| format!("{it}:{it}:ro"));
    let pillion = [
        format!("{PILLION}:/pillion:ro"),
        format!("{PILLION_LAB}:/pillion-lab:ro"),
    ];
    programs.into_iter().chain(pillion).collect()
}

/// Path with some data loss, and a receiver at its end.
pub struct Stream {
    pub pair: HostPair,
    /// Idle process in the sender's namespace.
    pub sleeper: Sleeper,
    _listener: TcpListener,
}

impl Stream {
    pub fn prepare() -> Self {
        let pair = lossy_pair(0.05);
        let receiver = &pair.receiver.namespace;
        let listener = receiver.enter(|| TcpListener::bind("10.77.0.2:7777"));
        Self {
            sleeper: Sleeper::of(&pair.sender.namespace),
            _listener: listener.unwrap().unwrap(),
            pair,
        }
    }

    /// Returns a flow of the sender's namespace; other pillions of this host may list theirs too.
    pub fn flow(&self, host: &EngineHost, namespace: &Namespace) -> Value {
        let file = format!("/proc/{}/ns/net", self.sleeper.pid());
        let inode = fs::metadata(file).unwrap().ino();
        let flows = host.json(namespace, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().iter();
        let flow = flows.find(|flow| flow["netns"] == inode);
        flow.cloned().unwrap_or_default()
    }
}

/// Counts bundles rather than repairs: on a slow machine bundles are large, the receiver delays its
/// ACKs, and these reveal few losses.
pub fn has_bundled(flow: &Value) -> bool {
    flow["outcomes"]["bundled"].as_u64() > Some(20)
}
