//! A pillion that a service manager looks after: one that is played by the test, and systemd itself.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_tests::HostPair;
use tempfile::TempDir;

use crate::common::*;
use crate::devices_start::batch;
use crate::namespaces::{Name, Resident};

/// The socket to which a service tells its state.
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

    /// The messages that are there by now.
    pub fn heard(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        while let Ok(text) = self.next() {
            heard.push(text);
        }
        self.socket.set_nonblocking(false).unwrap();
        heard
    }

    /// The next message that has this in it.
    pub fn hear(&self, part: &str) -> String {
        for _ in 0..100 {
            let text = self.next().expect(part);
            if text.contains(part) {
                return text;
            }
        }
        panic!("never told: {part}");
    }

    /// The next message, which is no longer than systemd takes one.
    fn next(&self) -> io::Result<String> {
        const LONGEST: usize = 4096;
        let mut bytes = [0; LONGEST + 1];
        let length = self.socket.recv(&mut bytes)?;
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
        assert!(lines.any(|line| line.contains(what)), "never said: {what}");
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
        "netns = \"/proc/{}/ns/net\"\n[[rule]]\n[[rule]]\n",
        resident.pid()
    );
    fs::write(&rules, text).unwrap();
    signal(&service, Signal::SIGHUP);
    manager.hear("RELOADING=1");
    says("rules.toml: 2 rules");
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

/// A systemd with the unit of packaging/ alone, in namespaces of its own.
struct Systemd {
    process: Child,
    folder: TempDir,
    cgroup: PathBuf,
}

const SYSTEMD: &str = "/lib/systemd/systemd";

const UNIT: &str = include_str!("../../packaging/systemd/pillion.service");

/// Where the unit lets it tell of itself.
const TOLD: &str = "metrics = \"unix:/run/pillion/metrics\"\n\
                    stats = \"/var/lib/pillion/stats.json\"\n";

impl Systemd {
    /// Boots it in the network namespace of the sender, with some lines of the unit replaced.
    fn boot(pair: &HostPair, rules: &str, changes: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        fs::create_dir(at("units")).unwrap();
        fs::copy(PILLION, at("pillion")).unwrap();
        fs::write(at("pillion.toml"), rules).unwrap();
        // The rest is as it is installed. The folder is where /tmp is, of which a service has its own.
        let unit = UNIT
            .replace("/usr/bin/pillion", at("pillion").to_str().unwrap())
            .replace(
                "/etc/pillion/pillion.toml",
                at("pillion.toml").to_str().unwrap(),
            )
            .replace("User=pillion", "User=nobody")
            .replace("PrivateTmp=yes\n", "")
            .replace("[Service]\n", "[Service]\nStandardError=append:/run/log\n");
        let mut unit = unit.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n");
        for (line, other) in changes {
            assert!(unit.contains(&format!("\n{line}\n")), "{line}");
            unit = unit.replace(line, other);
        }
        fs::write(at("units/pillion.service"), unit).unwrap();
        let target = "[Unit]\nDefaultDependencies=no\nWants=pillion.service\n";
        fs::write(at("units/boot.target"), target).unwrap();
        let name = folder.path().file_name().unwrap().display();
        let cgroup = own_cgroup().join(format!("pillion-boot{name}"));
        fs::create_dir(&cgroup).unwrap();
        let script = "echo $$ > $1/cgroup.procs && exec unshare --pid --fork --kill-child --mount \
                      --cgroup --uts --ipc --mount-proc sh -c 'mount -t tmpfs none /run && \
                      mount -t tmpfs none /var/lib && \
                      mount -t cgroup2 none /sys/fs/cgroup && exec $0 --system --unit=boot.target \
                      --show-status=no --log-target=null' $0";
        let mut boot = pair.sender.namespace.command("sh");
        boot.args(["-c", script, SYSTEMD]).arg(&cgroup);
        boot.env("container", "pillion")
            .env("SYSTEMD_UNIT_PATH", at("units"));
        boot.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = boot.spawn().unwrap();
        Self {
            process,
            folder,
            cgroup,
        }
    }

    /// A command that is run where systemd is.
    fn run(&self, words: &[&str]) -> Output {
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        let first = fs::read_to_string(children).unwrap_or_default();
        let mut enter = Command::new("nsenter");
        enter
            .args(["--target", first.trim(), "--all", "--"])
            .args(words);
        enter.output().unwrap()
    }

    fn show(&self, property: &str) -> String {
        let shown = self.run(&[
            "systemctl",
            "show",
            "--value",
            "--property",
            property,
            "pillion",
        ]);
        stdout(&shown).trim().to_owned()
    }

    fn log(&self) -> String {
        stdout(&self.run(&["cat", "/run/log"]))
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("pillion.toml")
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let remove = || remove_cgroups(&self.cgroup).is_ok();
        if !std::thread::panicking() {
            eventually("its cgroups are gone", remove);
        }
    }
}

fn remove_cgroups(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)?
        .flatten()
        .filter(|it| it.path().is_dir())
    {
        remove_cgroups(&entry.path())?;
    }
    fs::remove_dir(path)
}

#[test]
fn systemd_starts_it_reloads_it_lets_it_hand_over_and_stops_it() {
    needs_root!();
    if !Path::new(SYSTEMD).exists() {
        println!("left out without systemd");
        return;
    }
    let pair = clean_pair();
    let systemd = Systemd::boot(&pair, &format!("{TOLD}[[rule]]\nports = 7001\n"), &[]);
    within(Duration::from_secs(30), "the service is active", || {
        let log = systemd.log();
        assert!(!log.contains("pillion: open"), "{log}");
        systemd.show("ActiveState") == "active"
    });
    let status = systemd.show("StatusText");
    assert!(status.starts_with("bundling by 1 rule of "), "{status}");
    assert!(status.ends_with(" on tap0"), "{status}");
    let pid = systemd.show("MainPID");
    let process = stdout(&systemd.run(&["cat", &format!("/proc/{pid}/status")]));
    let set = |name| {
        let line = process
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let (net_admin, perfmon, bpf) = (1 << 12, 1 << 38, 1u64 << 39);
    assert_eq!(set("CapEff:"), net_admin | bpf, "{process}");
    assert_eq!(set("CapPrm:"), net_admin | bpf | perfmon, "{process}");
    let url = "http://pillion/metrics";
    let scraped = systemd.run(&["curl", "-s", "--unix-socket", "/run/pillion/metrics", url]);
    if scraped.status.success() {
        let metrics = stdout(&scraped);
        assert!(metrics.contains("\npillion_devices 1.0\n"), "{metrics}");
    }

    fs::write(
        systemd.rules(),
        format!("{TOLD}[[rule]]\nports = 7001\n[[rule]]\nports = 7002\n"),
    )
    .unwrap();
    assert!(
        systemd
            .run(&["systemctl", "reload", "pillion"])
            .status
            .success()
    );
    eventually("the rules are others", || {
        systemd.show("StatusText").contains("by 2 rules")
    });

    let rules = fs::read_to_string(systemd.rules()).unwrap();
    fs::write(systemd.rules(), "[[rule]]\nports = 70000\n").unwrap();
    let refused = systemd.run(&["systemctl", "reload", "pillion"]);
    assert!(!refused.status.success());
    assert_eq!(systemd.show("ActiveState"), "active");
    fs::write(systemd.rules(), rules).unwrap();

    let hand_over = [
        "systemctl",
        "kill",
        "--kill-whom=main",
        "-s",
        "USR2",
        "pillion",
    ];
    let handed = systemd.run(&hand_over);
    assert!(handed.status.success(), "{}", stderr(&handed));
    eventually("the successor is the main process", || {
        let now = systemd.show("MainPID");
        now != pid && now != "0" && systemd.log().contains("its successor is at work")
    });
    assert_eq!(systemd.show("ActiveState"), "active");
    assert_eq!(systemd.show("NRestarts"), "0");
    let process =
        stdout(&systemd.run(&["cat", &format!("/proc/{}/status", systemd.show("MainPID"))]));
    assert!(process.contains("Name:\tpillion"), "{process}");

    assert!(
        systemd
            .run(&["systemctl", "stop", "pillion"])
            .status
            .success()
    );
    let ended = [systemd.show("ExecMainCode"), systemd.show("ExecMainStatus")];
    assert_eq!(ended, ["1", "0"], "{}", systemd.log());
    assert_eq!(systemd.show("Result"), "success");
    assert_eq!(systemd.show("ActiveState"), "inactive");
    let stays = stdout(&systemd.run(&["cat", "/var/lib/pillion/stats.json"]));
    assert!(stays.contains("\"connections\":"), "{stays}");
}

#[test]
fn systemd_lets_it_be_where_a_mistake_stays() {
    needs_root!();
    if !Path::new(SYSTEMD).exists() {
        println!("left out without systemd");
        return;
    }
    let pair = clean_pair();
    let fewer = [
        ("StartLimitBurst=300", "StartLimitBurst=3"),
        ("RestartSec=2", "RestartSec=100ms"),
    ];
    let systemd = Systemd::boot(&pair, "[[rule]]\nports = 70000\n", &fewer);
    within(Duration::from_secs(30), "the service has failed", || {
        systemd.show("ActiveState") == "failed"
    });
    assert_eq!(systemd.show("ExecMainStatus"), "2", "{}", systemd.log());
    assert_eq!(systemd.show("NRestarts"), "3");
}

#[test]
fn the_unit_is_started_too_often_only_if_a_mistake_stays() {
    let number = |key: &str| -> u32 {
        let mut lines = UNIT.lines().filter_map(|line| line.strip_prefix(key));
        lines.next().expect(key).parse().expect(key)
    };
    let (every, starts) = (number("RestartSec="), number("StartLimitBurst="));
    assert!(starts * every >= 600, "names that come late are tried");
    // Until a name server that does not answer is given up.
    let slow = every + 5;
    assert!(starts * slow < number("StartLimitIntervalSec="), "it holds");
}
