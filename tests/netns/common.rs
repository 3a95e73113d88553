//! Helpers shared by the tests.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
pub use pillion_tests::send_signal;

/// The binary under test.
pub const PILLION: &str = env!("CARGO_BIN_EXE_pillion");
/// The lab's binary: traffic sender and receiver, and tools that check results.
pub const PILLION_LAB: &str = concat!(env!("CARGO_BIN_EXE_pillion"), "-lab");

/// Returns whether the test runs as root; otherwise prints that it is skipped.
pub fn is_root(test: &str) -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        println!("left out without root: {test}");
    }
    root
}

macro_rules! needs_root {
    () => {
        if !crate::common::is_root(std::thread::current().name().unwrap_or("a test")) {
            return;
        }
    };
}
pub(crate) use needs_root;

/// Creates two hosts with 20 ms each way and no losses.
pub fn clean_pair() -> HostPair {
    lossy_pair(0.0)
}

/// Creates two hosts with 20 ms each way, where a share of the data packets is lost.
pub fn lossy_pair(loss: f64) -> HostPair {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(20))
    };
    let path = PathConfig {
        forward: direction(loss),
        backward: direction(0.0),
        seed: 1,
    };
    HostPair::create(&path)
}

/// Builds a `pillion` command inside a namespace.
pub fn pillion_in(namespace: &Namespace, arguments: &[&str]) -> Command {
    command_in(namespace, PILLION, arguments)
}

/// Builds a `pillion-lab` command inside a namespace.
pub fn lab_in(namespace: &Namespace, arguments: &[&str]) -> Command {
    command_in(namespace, PILLION_LAB, arguments)
}

fn command_in(namespace: &Namespace, program: &str, arguments: &[&str]) -> Command {
    let mut command = namespace.command(program);
    command.args(arguments);
    reset_signals(&mut command);
    command
}

/// Resets the terminating signals for a command. The test runner may ignore them, as under `nohup`
/// or as a background job of a shell.
pub fn reset_signals(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            for terminating in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
                signal(terminating, SigHandler::SigDfl)?;
            }
            Ok(())
        });
    }
}

/// Runs `pillion` in the test's own namespace.
pub fn pillion(arguments: &[&str]) -> Output {
    output(PILLION, arguments)
}

/// Runs `pillion-lab` in the test's own namespace.
pub fn lab(arguments: &[&str]) -> Output {
    output(PILLION_LAB, arguments)
}

pub fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; `cargo build` builds it"))
}

/// Creates a namespace whose loopback device is up.
pub fn namespace_with_loopback() -> Namespace {
    let namespace = Namespace::create().expect("a namespace");
    let status = namespace
        .command("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(status.expect("ip runs").success());
    namespace
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits up to thirty seconds for a condition: a busy machine takes ten for a few processes.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    within(Duration::from_secs(30), what, condition);
}

/// Waits for a condition; `what` names it if the time runs out.
pub fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < limit, "condition not met: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the ids of the eBPF objects that a process holds, as `prog_id 12`.
pub fn bpf_objects(pid: u32) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return BTreeSet::new();
    };
    let texts = entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines
        .iter()
        .filter_map(|line| line.split_once(":\t"))
        .filter(|(name, _)| ["prog_id", "link_id", "map_id"].contains(name))
        .map(|(name, id)| format!("{name} {id}"))
        .collect()
}

/// Returns all eBPF objects of this host, in the same form.
pub fn all_bpf_objects() -> BTreeSet<String> {
    use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
    let programs = ProgInfoIter::default().map(|program| format!("prog_id {}", program.id));
    let maps = MapInfoIter::default().map(|map| format!("map_id {}", map.id));
    let links = LinkInfoIter::default().map(|link| format!("link_id {}", link.id));
    programs.chain(maps).chain(links).collect()
}

/// Returns the cgroup of this process, in which `pillion run` creates its own.
pub fn own_cgroup() -> PathBuf {
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let memberships = fs::read_to_string("/proc/self/cgroup").expect("/proc/self/cgroup");
    let own = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or("");
    mount.join(own)
}

/// Returns the cgroup that a `pillion run` created for its command and holds open.
pub fn cgroup_of(pillion: u32) -> Option<PathBuf> {
    let files = fs::read_dir(format!("/proc/{pillion}/fd")).ok()?;
    let mut paths = files
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    let own = own_cgroup();
    paths.find(|path| path.parent() == Some(&own) && path.is_dir())
}

/// Waits until a pillion has attached its programs; the cgroup programs come last.
pub fn await_attached(pid: u32) {
    const CGROUP_LINKS: usize = 5;
    within(Duration::from_secs(30), "the programs are attached", || {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter();
        let texts = entries
            .flatten()
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path()).ok());
        let is_link = |text: &String| text.contains("link_type:\tcgroup");
        texts.filter(is_link).count() >= CGROUP_LINKS
    });
}

/// Returns the cleanup helper of a pillion.
pub fn cleanup_helper(pillion: u32) -> Pid {
    let has_helper = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.starts_with("Name:\tpillion-cleanup\n")
            && status.contains(&format!("\nPPid:\t{pillion}\n"))
    };
    let mut found = None;
    eventually("the cleanup helper runs", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let helper = processes.map(|it| it.path()).find(has_helper);
        found = helper.and_then(|it| it.file_name()?.to_str()?.parse().ok());
        found.is_some()
    });
    Pid::from_raw(found.unwrap())
}

/// Waits until a socket of a namespace listens on a port.
pub fn await_listening(namespace: &Namespace, port: u16) {
    const LISTEN: &str = "0A";
    let socket = format!(":{port:04X} 00000000:0000 {LISTEN} ");
    eventually("the port has a listener", || {
        let table = || fs::read_to_string("/proc/thread-self/net/tcp");
        let sockets = namespace.enter(table).expect("enter");
        sockets.expect("the table").contains(&socket)
    });
}

/// Starts a receiver, which ends after this number of streams and verifies every byte.
pub fn receive(pair: &HostPair, port: u16, streams: u32) -> Child {
    let listen = format!("10.77.0.2:{port}");
    let receiver = lab_in(&pair.receiver.namespace, &["traffic", "receive"])
        .args(["--listen", &listen, "--streams", &streams.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_listening(&pair.receiver.namespace, port);
    receiver
}

/// Child process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn read_json(path: &Path) -> serde_json::Value {
    let text = fs::read_to_string(path).expect("the file exists");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Reads a `TcpExt` counter of a namespace, as `nstat` shows it.
pub fn netstat(namespace: &Namespace, name: &'static str) -> u64 {
    namespace
        .enter(|| pillion_tests::netstat(name))
        .expect("enter")
}
