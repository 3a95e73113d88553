//! Devices that appear, vanish, get renamed and are stacked while pillion runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use pillion_bpf::host::interruption::poll;
use pillion_lab::Namespace;
use serde_json::Value;

use crate::common::*;

/// Two hosts: `near` with the devices `a0` and `a1`, which are up, and `far` without devices.
pub struct Hosts {
    pub near: Namespace,
    pub far: Namespace,
    /// Process by which `ip` refers to the far host's namespace.
    far_process: Child,
}

impl Hosts {
    pub fn create() -> Self {
        let far = namespace_with_loopback();
        let far_process = far.command("sleep").arg("300").spawn().unwrap();
        let hosts = Self {
            near: namespace_with_loopback(),
            far,
            far_process,
        };
        hosts.ip("link add a0 type veth peer name a1");
        hosts.ip("link set a0 up");
        hosts.ip("link set a1 up");
        hosts
    }

    pub fn ip(&self, arguments: &str) {
        let mut command = self.near.command("ip");
        let status = command.args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    }

    /// Joins the hosts by a veth device with this name; it is down.
    pub fn join(&self, name: &str) {
        self.ip(&format!(
            "link add {name} type veth peer name far {}",
            self.far_netns()
        ));
    }

    /// Returns the `ip link` argument that places a device on the far host.
    pub fn far_netns(&self) -> String {
        format!("netns {}", self.far_process.id())
    }

    /// Assigns addresses to both ends and sends `pieces` messages of 100 bytes from the near host.
    pub fn send_over(&self, device: &str, pieces: usize) {
        self.ip(&format!("address add 10.78.0.1/24 dev {device}"));
        for arguments in ["address add 10.78.0.2/24 dev far", "link set far up"] {
            let status = self.far.command("ip").args(arguments.split(' ')).status();
            assert!(status.unwrap().success());
        }
        self.send(pieces);
    }

    /// Sends `pieces` messages of 100 bytes from the near host, on a new connection.
    fn send(&self, pieces: usize) {
        let listener = self.far.enter(|| TcpListener::bind("10.78.0.2:7777"));
        let listener = listener.unwrap().unwrap();
        let receiver = thread::spawn(move || {
            let mut received = Vec::new();
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let sent = move || {
            let mut stream = TcpStream::connect("10.78.0.2:7777").unwrap();
            stream.set_nodelay(true).unwrap();
            let sent: Vec<u8> = (0..pieces).flat_map(|i| [i as u8; 100]).collect();
            sent.chunks(100)
                .for_each(|piece| stream.write_all(piece).unwrap());
            sent
        };
        assert_eq!(self.near.enter(sent).unwrap(), receiver.join().unwrap());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.far_process.kill();
        let _ = self.far_process.wait();
    }
}

/// Running `pillion attach` with its log.
pub struct Attach {
    pub process: Child,
    lines: BufReader<ChildStderr>,
    folder: tempfile::TempDir,
}

impl Attach {
    pub fn start(hosts: &Hosts, options: &[&str]) -> Self {
        Self::start_in(&hosts.near, options)
    }

    pub fn start_in(namespace: &Namespace, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stats = folder.path().join("stats.json");
        let stats = stats.to_str().unwrap();
        let arguments = ["attach", "--all", "--thin", "always", "--stats", stats];
        let command = pillion_in(namespace, &[&arguments, options].concat());
        let mut attach = Self::spawn(command, folder);
        let first = attach.next_line();
        assert!(
            first.starts_with("pillion: bundling all connections on "),
            "{first}"
        );
        attach
    }

    /// Starts a command that runs pillion; `folder` is kept until it stops.
    pub fn spawn(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            lines: BufReader::new(process.stderr.take().unwrap()),
            process,
            folder,
        }
    }

    /// Reads the next log line.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn expect_line(&mut self, line: &str) {
        assert_eq!(self.next_line(), format!("pillion: {line}"));
    }

    /// Waits for a log line and skips all lines before it.
    pub fn wait_for_line(&mut self, line: &str) {
        let expected = format!("pillion: {line}");
        self.wait_for(&expected, |log| log == expected);
    }

    /// Waits for a log line that starts like this, skips all lines before it, and returns it.
    pub fn wait_for_start(&mut self, start: &str) -> String {
        let expected = format!("pillion: {start}");
        self.wait_for(&expected, |log| log.starts_with(&expected))
    }

    fn wait_for(&mut self, expected: &str, is_it: impl Fn(&str) -> bool) -> String {
        const LIMIT: Duration = Duration::from_secs(20);
        let started = Instant::now();
        let mut skipped = Vec::new();
        loop {
            let has_data = self.lines.buffer().contains(&b'\n') || {
                let left = LIMIT.saturating_sub(started.elapsed());
                let mut pipe = [PollFd::new(self.lines.get_ref().as_fd(), PollFlags::POLLIN)];
                poll(&mut pipe, Some(left)).unwrap() != 0
            };
            assert!(has_data, "never logged: {expected}; {skipped:#?}");
            let log = self.next_line();
            assert!(!log.is_empty(), "exited without: {expected}; {skipped:#?}");
            if is_it(&log) {
                return log;
            }
            skipped.push(log);
        }
    }

    /// Returns the number of BPF links that it holds.
    pub fn links(&self) -> usize {
        self.link_ids().len()
    }

    /// Returns the ids of the BPF links that it holds.
    pub fn link_ids(&self) -> Vec<u32> {
        let objects = bpf_objects(self.process.id());
        let ids = objects
            .iter()
            .filter_map(|object| object.strip_prefix("link_id "));
        ids.map(|id| id.parse().unwrap()).collect()
    }

    pub fn stop(mut self) -> Value {
        self.terminate();
        read_json(&self.folder.path().join("stats.json"))
    }

    /// Stops a process that writes no statistics.
    pub fn stop_without_stats(mut self) {
        self.terminate();
    }

    fn terminate(&mut self) {
        send_signal(&self.process, Signal::SIGTERM);
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn new_device_is_attached_until_removed() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::start(&hosts, &[]);
    let links = attach.links();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    attach.expect_line("attached to v0");
    assert_eq!(attach.links(), links + 2);
    hosts.send_over("v0", 50);
    // A device that is briefly down remains the same device.
    hosts.ip("link set v0 down");
    hosts.ip("link set v0 name w0");
    hosts.ip("link set w0 up");
    // Gives pillion time to notice the new name.
    thread::sleep(Duration::from_millis(200));
    hosts.ip("link delete w0");
    attach.expect_line("detached from w0");
    assert_eq!(attach.links(), links);
    let stats = attach.stop();
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["new_bytes"], 5000);
}

#[test]
fn device_name_follows_whichever_device_has_it() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::start(&hosts, &["--dev", "a0"]);
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("link set a0 down");
    hosts.ip("link set a0 name b0");
    attach.wait_for_line("detached from a0");
    hosts.ip("link set v0 down");
    hosts.ip("link set v0 name a0");
    attach.wait_for_line("attached to a0");
    hosts.ip("link delete a0");
    attach.wait_for_line("detached from a0");
    hosts.join("a0");
    attach.wait_for_line("attached to a0");
    hosts.ip("link set a0 up");
    hosts.send_over("a0", 50);
    assert_eq!(attach.stop()["new_bytes"], 5000);
}

#[test]
fn check_lists_devices_and_warns_of_shapers_before_bundling() {
    needs_root!();
    let hosts = Hosts::create();
    let check = || stdout(&pillion_in(&hosts.near, &["check"]).output().unwrap());
    let tc = |arguments: &str| {
        let mut command = hosts.near.command("tc");
        assert!(
            command
                .args(arguments.split(' '))
                .status()
                .unwrap()
                .success()
        );
    };
    let bucket = "tbf rate 1mbit burst 5kb latency 50ms";
    tc(&format!("qdisc add dev a0 root {bucket}"));
    let report = check();
    let warning = "warning  shaper          tbf on a0 counts a packet's length without its bundle";
    assert!(report.contains("a0 (Ethernet)"), "{report}");
    assert!(report.contains(warning), "{report}");
    // Apply the remedy that the warning names.
    tc("qdisc delete dev a0 root");
    let table = "stab overhead 0 linklayer ethernet";
    tc(&format!("qdisc replace dev a0 root {table} {bucket}"));
    let report = check();
    assert!(!report.contains("shaper"), "{report}");
}

#[test]
fn run_attaches_new_device() {
    needs_root!();
    let hosts = Hosts::create();
    let script = "ip link add v0 type veth peer name v1 && ip link set v0 up";
    let output = pillion_in(&hosts.near, &["run", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let log = stderr(&output);
    assert!(log.starts_with("pillion: attached to v0\n"), "{log}");
}

#[test]
fn tunnel_traffic_is_counted_inside_tunnel_only() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("address add 10.79.0.1/24 dev v0");
    let tunnel =
        |local, remote| format!("type vxlan id 5 dstport 4789 local {local} remote {remote}");
    hosts.ip(&format!("link add t0 {}", tunnel("10.79.0.1", "10.79.0.2")));
    hosts.ip("link set t0 up");
    for arguments in [
        "link set far name outer",
        "address add 10.79.0.2/24 dev outer",
        "link set outer up",
        &format!("link add far {}", tunnel("10.79.0.2", "10.79.0.1")),
    ] {
        let status = hosts.far.command("ip").args(arguments.split(' ')).status();
        assert!(status.unwrap().success(), "ip {arguments}");
    }
    let attach = Attach::start(&hosts, &["--dev", "v0", "--dev", "t0"]);
    hosts.send_over("t0", 50);
    let stats = attach.stop();
    assert_eq!(stats["new_bytes"], 5000);
    assert!(stats["outcomes"]["unparsed_ip"].is_null(), "{stats}");
}

#[test]
fn macvlan_traffic_is_counted_once() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("link add m0 link v0 type macvlan mode bridge");
    hosts.ip("link set m0 up");
    let attach = Attach::start(&hosts, &["--dev", "v0", "--dev", "m0"]);
    hosts.send_over("m0", 50);
    assert_eq!(attach.stop()["new_bytes"], 5000);
}

/// A queue that refuses copies, or the segment after its copy, loses nothing of the stream.
#[test]
fn stream_is_whole_although_queue_refuses_copies() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let tbf = "qdisc add dev v0 root tbf rate 1mbit burst 1600 limit 3200";
    let mut tc = hosts.near.command("tc");
    assert!(tc.args(tbf.split(' ')).status().unwrap().success());
    let attach = Attach::start(&hosts, &["--dev", "v0", "--copies", "2"]);
    // On a busy machine, TCP sends most of one connection's messages in large segments.
    hosts.send_over("v0", 30);
    for _ in 0..10 {
        hosts.send(30);
    }
    let stats = attach.stop();
    assert!(stats["copies_refused"].as_u64() > Some(0), "{stats}");
}

/// A clone at a VLAN device is none of the lower device's business.
#[test]
fn copies_at_stacked_devices_leave_once_each() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("link add m0 link v0 type macvlan mode bridge");
    hosts.ip("link set m0 up");
    let attach = Attach::start(&hosts, &["--dev", "v0", "--dev", "m0", "--copies", "1"]);
    hosts.send_over("m0", 50);
    let stats = attach.stop();
    assert!(
        (1..=50).contains(&stats["copies"].as_u64().unwrap()),
        "{stats}"
    );
    assert_eq!(stats["new_bytes"], 5000);
}
