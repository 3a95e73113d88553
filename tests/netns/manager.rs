//! pillion under a service manager, whose role the test plays.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use tempfile::TempDir;

use crate::common::*;
use crate::many_devices::ip_batch;
use crate::namespaces::{NetnsName, Sleeper};

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
            .set_read_timeout(Some(Duration::from_secs(60)))
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

    /// Fills the queue, so that a further message waits until this end reads.
    fn fill(&self) {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"STATUS=", &self.path).is_ok() {}
    }

    /// Returns all messages received so far.
    pub fn drain(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut messages = Vec::new();
        while let Ok(text) = self.next() {
            messages.push(text);
        }
        self.socket.set_nonblocking(false).unwrap();
        messages
    }

    /// Waits for the next message that contains `part`.
    pub fn wait_for(&self, part: &str) -> String {
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
        const MAX_LEN: usize = 4096;
        let mut bytes = [0; MAX_LEN + 1];
        let length = retry(|| self.socket.recv(&mut bytes))?;
        assert!(length <= MAX_LEN, "systemd would drop it");
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

#[test]
fn service_stops_under_manager_that_does_not_read() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let mut service = manager.start(&namespace, &["attach", "--all", "--dev", "lo"]);
    manager.wait_for("READY=1");
    manager.fill();
    // Long enough for a message to the full queue.
    thread::sleep(Duration::from_secs(2));
    send_signal(&service, Signal::SIGTERM);
    let mut status = None;
    within(Duration::from_secs(30), "the service exits", || {
        status = service.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

#[test]
fn manager_is_notified_of_ready_watchdog_reload_and_stop() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\nport = 7001\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    let ready = manager.wait_for("READY=1");
    assert!(
        ready.contains(&format!("MAINPID={}\n", service.id())),
        "{ready}"
    );
    assert!(ready.contains("STATUS=bundling by 1 rule of "), "{ready}");
    manager.wait_for("WATCHDOG=1");
    fs::write(&rules, "[[rule]]\nport = 7001\n[[rule]]\n").unwrap();
    send_signal(&service, Signal::SIGHUP);
    assert!(manager.wait_for("RELOADING=1").contains("MONOTONIC_USEC="));
    assert!(manager.wait_for("READY=1").contains("by 2 rules"));
    send_signal(&service, Signal::SIGTERM);
    manager.wait_for("STOPPING=1");
    assert!(service.wait().unwrap().success());
}

#[test]
fn wait_mode_waits_for_device_and_reports_it() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), Namespace::create().unwrap());
    let wait = ["attach", "--all", "--wait", "--dev", "late0"];
    let mut service = manager.start(&namespace, &wait);
    let waits = manager.wait_for("READY=1");
    assert!(
        waits.contains("STATUS=waiting: no network device `late0`"),
        "{waits}"
    );
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut line = || log.next().unwrap().unwrap();
    assert!(line().starts_with("pillion: waiting: no network device `late0`"));
    let ip = |words: &str| {
        let mut ip = namespace.command("ip");
        assert!(ip.args(words.split(' ')).status().unwrap().success());
    };
    ip("tuntap add late0 mode tap");
    ip("link set late0 up");
    assert!(
        manager
            .wait_for("MAINPID=")
            .contains("bundling all connections on late0")
    );
    ip("link del late0");
    manager.wait_for("STATUS=bundling all connections when a device is up");
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());

    let mut service = manager.start(
        &namespace,
        &["attach", "--all", "--wait", "--dev", "never0"],
    );
    manager.wait_for("STATUS=waiting: ");
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn ready_message_is_shortened_for_many_devices() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let sleeper = Sleeper::of(&namespace);
    let name = NetnsName::assign_with_suffix(&sleeper, &"n".repeat(200));
    let devices = (0..20).map(|number| format!("tuntap add many{number} mode tap\n"));
    let up = (0..20).map(|number| format!("link set many{number} up\n"));
    ip_batch(&namespace, &devices.chain(up).collect::<String>());
    let mut service = manager.start(&namespace, &["attach", "--all", "--netns", &name.0]);
    let ready = manager.wait_for("READY=1");
    assert!(
        ready.contains("MAINPID=") && ready.contains("..."),
        "{ready}"
    );
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn waiting_process_reloads_rules_and_refuses_handover() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let sleeper = Sleeper::of(&namespace);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "netns = \"pillion-test-tpyo\"\n[[rule]]\n").unwrap();
    let file = rules.to_str().unwrap();
    let arguments = ["attach", "--wait", "--dev", "lo", "--config", file];
    let mut service = manager.start(&namespace, &arguments);
    manager.wait_for("STATUS=waiting: no network namespace");
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut expect_log = |what: &str| {
        let mut lines = log.by_ref().map(Result::unwrap);
        assert!(
            lines.any(|line| line.contains(what)),
            "never logged: {what}"
        );
    };
    expect_log("waiting: no network namespace `pillion-test-tpyo`");
    send_signal(&service, Signal::SIGUSR2);
    expect_log("hand-over failed: pillion still waits");
    fs::write(&rules, "netns = 3.5").unwrap();
    send_signal(&service, Signal::SIGHUP);
    manager.wait_for("RELOADING=1");
    expect_log("not reloaded: the old rules stay in force");
    manager.wait_for("READY=1");
    expect_log("waiting: no network namespace `pillion-test-tpyo`");
    let text = format!(
        "netns = \"/proc/{}/ns/net\"\nlog-totals = \"1m\"\n[[rule]]\n[[rule]]\n",
        sleeper.pid()
    );
    fs::write(&rules, text).unwrap();
    send_signal(&service, Signal::SIGHUP);
    manager.wait_for("RELOADING=1");
    expect_log("rules.toml: 2 rules");
    expect_log("`log-totals` changed: restart pillion to apply it");
    expect_log(&format!(
        "bundling by 2 rules of {file} on lo in /proc/{}/ns/net",
        sleeper.pid()
    ));
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn number_in_wait_mode_is_namespace_name_not_pid() {
    needs_root!();
    let [own, process, named] = [(); 3].map(|()| namespace_with_loopback());
    let [process, sleeper] = [&process, &named].map(Sleeper::of);
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
        let mut service = manager.start(&own, &arguments);
        let waits = manager.wait_for("STATUS=waiting: ");
        let expected = format!("waiting: no network namespace `{number}`");
        assert!(waits.contains(&expected), "{waits}");
        let name = NetnsName(number.clone());
        NetnsName::attach(&name.0, &sleeper.pid());
        manager.wait_for(&format!(" on own0 in {number}"));
        send_signal(&service, Signal::SIGTERM);
        assert!(service.wait().unwrap().success());
    }
}

#[test]
fn sighup_without_rules_file_does_not_stop_service() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut setsid = namespace.command("setsid");
    setsid.args(["--wait", PILLION, "attach", "--all", "--dev", "lo"]);
    reset_signals(&mut setsid);
    let mut service = setsid.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    assert!(
        log.next()
            .unwrap()
            .unwrap()
            .starts_with("pillion: bundling ")
    );
    send_signal(&service, Signal::SIGHUP);
    let line = log.next().unwrap().unwrap();
    assert!(line.contains("SIGHUP ignored"), "{line}");
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}
