//! pillion under a real systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use caps::Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON};
use pillion_tests::HostPair;
use tempfile::TempDir;

use crate::common::*;

/// systemd with only the unit of packaging/, in its own namespaces.
struct Systemd {
    process: Child,
    folder: TempDir,
    cgroup: PathBuf,
}

const SYSTEMD: &str = "/lib/systemd/systemd";

const UNIT: &str = include_str!("../../packaging/systemd/pillion.service");

/// Output keys that the unit's sandbox permits.
const OUTPUT_KEYS: &str = "metrics = \"unix:/run/pillion/metrics\"\n\
                    stats = \"/var/lib/pillion/stats.json\"\n";

impl Systemd {
    /// Boots it in the sender's network namespace, with some lines of the unit replaced.
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
        // The rest is unchanged. The folder is below /tmp, which PrivateTmp would replace.
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

    /// Runs a command in the namespaces of systemd.
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
            eventually("its cgroups are removed", remove);
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
fn systemd_starts_reloads_hands_over_and_stops_service() {
    needs_root!();
    if !Path::new(SYSTEMD).exists() {
        println!("left out without systemd");
        return;
    }
    let pair = clean_pair();
    let systemd = Systemd::boot(&pair, &format!("{OUTPUT_KEYS}[[rule]]\nport = 7001\n"), &[]);
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
    let [net_admin, perfmon, bpf] = [CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF].map(|it| it.bitmask());
    assert_eq!(set("CapEff:"), net_admin | bpf, "{process}");
    assert_eq!(set("CapPrm:"), net_admin | bpf | perfmon, "{process}");
    let url = "http://pillion/metrics";
    let scraped = systemd.run(&["curl", "-s", "--unix-socket", "/run/pillion/metrics", url]);
    if scraped.status.success() {
        let metrics = stdout(&scraped);
        assert!(
            metrics.contains("\npillion_attached_devices 1.0\n"),
            "{metrics}"
        );
    }

    fs::write(
        systemd.rules(),
        format!("{OUTPUT_KEYS}[[rule]]\nport = 7001\n[[rule]]\nport = 7002\n"),
    )
    .unwrap();
    assert!(
        systemd
            .run(&["systemctl", "reload", "pillion"])
            .status
            .success()
    );
    eventually("the new rules are active", || {
        systemd.show("StatusText").contains("by 2 rules")
    });

    let rules = fs::read_to_string(systemd.rules()).unwrap();
    fs::write(systemd.rules(), "[[rule]]\nport = 70000\n").unwrap();
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
    let output = systemd.run(&hand_over);
    assert!(output.status.success(), "{}", stderr(&output));
    eventually("the new process is the main process", || {
        let now = systemd.show("MainPID");
        now != pid && now != "0" && systemd.log().contains("hand-over complete")
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
    let stats = stdout(&systemd.run(&["cat", "/var/lib/pillion/stats.json"]));
    assert!(stats.contains("\"connections\":"), "{stats}");
}

#[test]
fn systemd_gives_up_on_persistent_error() {
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
    let systemd = Systemd::boot(&pair, "[[rule]]\nport = 70000\n", &fewer);
    within(Duration::from_secs(30), "the service has failed", || {
        systemd.show("ActiveState") == "failed"
    });
    assert_eq!(systemd.show("ExecMainStatus"), "2", "{}", systemd.log());
    assert_eq!(systemd.show("NRestarts"), "3");
}

#[test]
fn unit_start_limit_is_reached_only_by_persistent_error() {
    let number = |key: &str| -> u32 {
        let mut lines = UNIT.lines().filter_map(|line| line.strip_prefix(key));
        lines.next().expect(key).parse().expect(key)
    };
    let (every, starts) = (number("RestartSec="), number("StartLimitBurst="));
    assert!(starts * every >= 600, "names that appear late are retried");
    // Plus the time that a silent name server takes.
    let slow = every + 5;
    assert!(
        starts * slow < number("StartLimitIntervalSec="),
        "the interval covers all starts"
    );
}
