//! pillion under a service manager, whose role the test plays.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use tempfile::TempDir;

use crate::common::*;
use crate::devices_start::batch;
use crate::namespaces::{Name, Resident};

/// Notification socket of a service manager.
pub struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    _folder: TempDir,
}

impl Manager {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self {
            socket,
            path,
            _folder: folder,
        }
    }

    pub fn start(&self, namespace: &Namespace, arguments: &[&str]) -> Child {
        let mut service = pillion_in(namespace, arguments);
        service.env("NOTIFY_SOCKET", &self.path);
        service.stdout(Stdio::null()).stderr(Stdio::piped());
        service.spawn().unwrap()
    }

    /// Returns all messages received so far.
    pub fn heard(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        while let Ok(text) = self.next() {
            heard.push(text);
        }
        self.socket.set_nonblocking(false).unwrap();
        heard
    }

    /// Waits for the next message that contains `part`.
    pub fn hear(&self, part: &str) -> String {
        for _ in 0..100 {
            let text = self.next().expect(part);
            if text.contains(part) {
                return text;
            }
        }
        panic!("never received: {part}");
    }

    /// Receives the next message and checks that systemd would accept its length.
    fn next(&self) -> io::Result<String> {
        const LONGEST: usize = 4096;
        let mut bytes = [0; LONGEST + 1];
        let length = retry(|| self.socket.recv(&mut bytes))?;
        assert!(length <= LONGEST, "systemd would drop it");
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

#[test]
fn a_manager_is_told_of_readiness_life_reload_and_end() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\nports = 7001\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    let ready = manager.hear("READY=1");
    assert!(
        ready.contains(&format!("MAINPID={}\n", service.id())),
        "{ready}"
    );
    assert!(ready.contains("STATUS=bundling by 1 rule of "), "{ready}");
    manager.hear("WATCHDOG=1");
    fs::write(&rules, "[[rule]]\nports = 7001\n[[rule]]\n").unwrap();
    signal(&service, Signal::SIGHUP);
    assert!(manager.hear("RELOADING=1").contains("MONOTONIC_USEC="));
    assert!(manager.hear("READY=1").contains("by 2 rules"));
    signal(&service, Signal::SIGTERM);
    manager.hear("STOPPING=1");
    assert!(service.wait().unwrap().success());
}

#[test]
fn at_boot_it_waits_for_what_is_not_there_yet_and_says_so() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), Namespace::create().unwrap());
    let wait = ["attach", "--all", "--wait", "--dev", "late0"];
    let mut service = manager.start(&namespace, &wait);
    let waits = manager.hear("READY=1");
    assert!(
        waits.contains("STATUS=waits: no network device `late0`"),
        "{waits}"
    );
    let mut says = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut line = || says.next().unwrap().unwrap();
    assert!(line().starts_with("pillion: waits: no network device `late0`"));
    let ip = |words: &str| {
        let mut ip = namespace.command("ip");
        assert!(ip.args(words.split(' ')).status().unwrap().success());
    };
    ip("tuntap add late0 mode tap");
    ip("link set late0 up");
    assert!(
        manager
            .hear("MAINPID=")
            .contains("bundling all connections on late0")
    );
    ip("link del late0");
    manager.hear("STATUS=bundling all connections, once a device is up");
    signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());

    let mut service = manager.start(
        &namespace,
        &["attach", "--all", "--wait", "--dev", "never0"],
    );
    manager.hear("STATUS=waits: ");
    signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn a_manager_is_told_of_readiness_on_however_many_devices() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let resident = Resident::of(&namespace);
    let name = Name::give_with(&resident, &"n".repeat(200));
    let devices = (0..20).map(|number| format!("tuntap add many{number} mode tap\n"));
    let up = (0..20).map(|number| format!("link set many{number} up\n"));
    batch(&namespace, &devices.chain(up).collect::<String>());
    let mut service = manager.start(&namespace, &["attach", "--all", "--netns", &name.0]);
    let ready = manager.hear("READY=1");
    assert!(
        ready.contains("MAINPID=") && ready.contains("..."),
        "{ready}"
    );
    signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn while_it_waits_it_hears_of_other_rules_and_has_no_successor() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let resident = Resident::of(&namespace);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "netns = \"pillion-test-tpyo\"\n[[rule]]\n").unwrap();
    let file = rules.to_str().unwrap();
    let arguments = ["attach", "--wait", "--dev", "lo", "--config", file];
    let mut service = manager.start(&namespace, &arguments);
    manager.hear("STATUS=waits: no network namespace");
    let mut says = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut says = |what: &str| {
        let mut lines = says.by_ref().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(what)), "never logged: {what}");
    };
    says("waits: no network namespace `pillion-test-tpyo`");
    signal(&service, Signal::SIGUSR2);
    says("no successor: it waits");
    fs::write(&rules, "netns = 3.5").unwrap();
    signal(&service, Signal::SIGHUP);
    manager.hear("RELOADING=1");
    says("not reloaded: the old rules hold");
    manager.hear("READY=1");
    says("waits: no network namespace `pillion-test-tpyo`");
    let text = format!(
        "netns = \"/proc/{}/ns/net\"\ntotals-every = 60\n[[rule]]\n[[rule]]\n",
        resident.pid()
    );
    fs::write(&rules, text).unwrap();
    signal(&service, Signal::SIGHUP);
    manager.hear("RELOADING=1");
    says("rules.toml: 2 rules");
    says("changes of `totals-every` take a new start");
    says(&format!(
        "bundling by 2 rules of {file} on lo in /proc/{}/ns/net",
        resident.pid()
    ));
    signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn at_boot_a_number_is_waited_for_as_a_name_and_is_no_process() {
    needs_root!();
    let [here, process, named] = [(); 3].map(|()| namespace_with_loopback());
    let [process, resident] = [&process, &named].map(Resident::of);
    let mut ip = named.command("ip");
    ip.args(["tuntap", "add", "own0", "mode", "tap"]);
    assert!(ip.status().unwrap().success());
    let number = process.pid();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, format!("netns = \"{number}\"\n[[rule]]\n")).unwrap();
    for options in [
        ["--config", rules.to_str().unwrap()].as_slice(),
        &["--all", "--netns", &number],
    ] {
        let manager = Manager::new();
        let arguments = [&["attach", "--wait", "--dev", "own0"], options].concat();
        let mut service = manager.start(&here, &arguments);
        let waits = manager.hear("STATUS=waits: ");
        let expected = format!("waits: no network namespace `{number}`");
        assert!(waits.contains(&expected), "{waits}");
        let name = Name(number.clone());
        Name::attach(&name.0, &resident.pid());
        manager.hear(&format!(" on own0 in {number}"));
        signal(&service, Signal::SIGTERM);
        assert!(service.wait().unwrap().success());
    }
}

#[test]
fn a_hang_up_without_rules_to_read_does_no_harm_to_a_service() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut setsid = namespace.command("setsid");
    setsid.args(["--wait", PILLION, "attach", "--all", "--dev", "lo"]);
    hears_all_signals(&mut setsid);
    let mut service = setsid.stderr(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(service.stderr.take().unwrap()).lines();
    assert!(
        says.next()
            .unwrap()
            .unwrap()
            .starts_with("pillion: bundling ")
    );
    signal(&service, Signal::SIGHUP);
    let line = says.next().unwrap().unwrap();
    assert!(line.contains("nothing to read again"), "{line}");
    signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}
