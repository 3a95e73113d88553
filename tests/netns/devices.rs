//! Devices that appear, vanish, get renamed and are stacked while pillion runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
            self.at_far()
        ));
    }

    /// Returns the `ip link` argument that places a device on the far host.
    pub fn at_far(&self) -> String {
        format!("netns {}", self.far_process.id())
    }

    /// Assigns addresses to both ends and sends `pieces` messages of 100 bytes from the near host.
    pub fn send_by(&self, device: &str, pieces: usize) {
        self.ip(&format!("address add 10.78.0.1/24 dev {device}"));
        for arguments in ["address add 10.78.0.2/24 dev far", "link set far up"] {
            let status = self.far.command("ip").args(arguments.split(' ')).status();
            assert!(status.unwrap().success());
        }
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
    pub fn begin(hosts: &Hosts, options: &[&str]) -> Self {
        Self::begin_in(&hosts.near, options)
    }

    pub fn begin_in(namespace: &Namespace, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stats = folder.path().join("stats.json");
        let stats = stats.to_str().unwrap();
        let arguments = ["attach", "--all", "--thin", "always", "--stats", stats];
        let command = pillion_in(namespace, &[&arguments, options].concat());
        let mut attach = Self::of(command, folder);
        let first = attach.said();
        assert!(
            first.starts_with("pillion: bundling all connections on "),
            "{first}"
        );
        attach
    }

    /// Starts a command that runs pillion; `folder` is kept until it stops.
    pub fn of(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            lines: BufReader::new(process.stderr.take().unwrap()),
            process,
            folder,
        }
    }

    /// Reads the next log line.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn says(&mut self, line: &str) {
        assert_eq!(self.said(), format!("pillion: {line}"));
    }

    /// Waits for a log line and skips all lines before it.
    pub fn hears(&mut self, line: &str) {
        const LIMIT: Duration = Duration::from_secs(20);
        let wanted = format!("pillion: {line}");
        let begun = Instant::now();
        let mut before = Vec::new();
        loop {
            let is_there = self.lines.buffer().contains(&b'\n') || {
                let left = LIMIT.saturating_sub(begun.elapsed());
                let mut pipe = [PollFd::new(self.lines.get_ref().as_fd(), PollFlags::POLLIN)];
                poll(&mut pipe, Some(left)).unwrap() != 0
            };
            assert!(is_there, "never logged: {wanted}; {before:#?}");
            let said = self.said();
            assert!(
                !said.is_empty(),
                "exited without: {wanted}; {before:#?}"
            );
            if said == wanted {
                return;
            }
            before.push(said);
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

    pub fn end(mut self) -> Value {
        self.terminate();
        read_json(&self.folder.path().join("stats.json"))
    }

    /// Stops a process that writes no statistics.
    pub fn interrupt(mut self) {
        self.terminate();
    }

    fn terminate(&mut self) {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn a_device_that_comes_is_bundled_on_until_it_goes() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::begin(&hosts, &[]);
    let links = attach.links();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    attach.says("v0 has come: bundling there, too");
    assert_eq!(attach.links(), links + 2);
    hosts.send_by("v0", 50);
    // A device that is briefly down remains the same device.
    hosts.ip("link set v0 down");
    hosts.ip("link set v0 name w0");
    hosts.ip("link set w0 up");
    // Gives pillion time to notice the new name.
    thread::sleep(Duration::from_millis(200));
    hosts.ip("link delete w0");
    attach.says("w0 has gone");
    assert_eq!(attach.links(), links);
    let stats = attach.end();
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["new_bytes"], 5000);
}

#[test]
fn a_name_stands_for_whatever_device_has_it() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::begin(&hosts, &["--dev", "a0"]);
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("link set a0 down");
    hosts.ip("link set a0 name b0");
    attach.says("a0 has gone");
    hosts.ip("link set v0 down");
    hosts.ip("link set v0 name a0");
    attach.says("a0 has come: bundling there, too");
    hosts.ip("link delete a0");
    attach.says("a0 has gone");
    hosts.join("a0");
    attach.says("a0 has come: bundling there, too");
    hosts.ip("link set a0 up");
    hosts.send_by("a0", 50);
    assert_eq!(attach.end()["new_bytes"], 5000);
}

#[test]
fn check_names_the_devices_and_warns_of_shapers_that_do_not_see_bundles() {
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
    let said = check();
    let warning = "warning  shaper          tbf on a0 takes a packet's length before the bundle";
    assert!(said.contains("a0 (Ethernet)"), "{said}");
    assert!(said.contains(warning), "{said}");
    // Apply the remedy that the warning names.
    tc("qdisc delete dev a0 root");
    let table = "stab overhead 0 linklayer ethernet";
    tc(&format!("qdisc replace dev a0 root {table} {bucket}"));
    let said = check();
    assert!(!said.contains("shaper"), "{said}");
}

#[test]
fn run_follows_devices_too() {
    needs_root!();
    let hosts = Hosts::create();
    let script = "ip link add v0 type veth peer name v1 && ip link set v0 up";
    let output = pillion_in(&hosts.near, &["run", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let said = stderr(&output);
    assert!(
        said.starts_with("pillion: v0 has come: bundling there, too\n"),
        "{said}"
    );
}

#[test]
fn what_passes_a_tunnel_is_counted_inside_it_alone() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("address add 10.79.0.1/24 dev v0");
    let tunnel = |here, there| format!("type vxlan id 5 dstport 4789 local {here} remote {there}");
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
    let attach = Attach::begin(&hosts, &["--dev", "v0", "--dev", "t0"]);
    hosts.send_by("t0", 50);
    let stats = attach.end();
    assert_eq!(stats["new_bytes"], 5000);
    assert!(stats["outcomes"]["not_plain_ip"].is_null(), "{stats}");
}

#[test]
fn what_passes_a_macvlan_and_the_device_below_it_is_counted_once() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    hosts.ip("link add m0 link v0 type macvlan mode bridge");
    hosts.ip("link set m0 up");
    let attach = Attach::begin(&hosts, &["--dev", "v0", "--dev", "m0"]);
    hosts.send_by("m0", 50);
    assert_eq!(attach.end()["new_bytes"], 5000);
}
