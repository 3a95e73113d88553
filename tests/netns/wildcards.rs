//! Cgroups and network namespaces that appear and vanish while pillion runs, selected by name or
//! wildcards.

use std::fs::{self, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpUserTimeout;
use nix::unistd::Pid;
use pillion_lab::Namespace;
use serde_json::Value;

use crate::common::*;
use crate::devices::Attach;
use crate::namespaces::{NetnsName, Sleeper};

/// Cgroup for a test. Dropping it kills its processes and removes it.
pub struct TestCgroup(PathBuf);

impl TestCgroup {
    pub fn create(name: &str) -> Self {
        let path = pillion_bpf::cgroup2_mount().unwrap().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Starts a loopback stream to `localhost` from a process in this cgroup.
    pub fn stream(&self, namespace: &Namespace) -> (Child, TcpListener) {
        let listener = namespace.enter(|| TcpListener::bind("localhost:0"));
        let listener = listener.unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let procs_file = self.0.join("cgroup.procs");
        let script = format!(
            "echo 0 > {} && exec {PILLION_LAB} traffic send --to localhost:{port} --itt 10ms --duration 60s",
            procs_file.display()
        );
        let mut send = namespace.command("sh");
        send.args(["-c", &script]);
        send.stdout(Stdio::null()).stderr(Stdio::null());
        (send.spawn().unwrap(), listener)
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        eventually("the cgroup is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

fn status(namespace: &Namespace) -> Value {
    let output = pillion_in(namespace, &["status", "--json"])
        .output()
        .unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all[0].clone()
}

#[test]
fn cgroup_pattern_covers_new_cgroups_and_reports_no_match() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let id = std::process::id();
    let pattern = format!("/coming-{id}-*");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = format!("[[rule]]\nthin = \"always\"\ncgroup = \"{pattern}\"\n");
    fs::write(&file, rules).unwrap();
    let file = file.to_str().unwrap();
    for options in [
        &["--config", file][..],
        &["--cgroup", &pattern, "--thin", "always"],
    ] {
        let arguments = [&["attach", "--dev", "lo"], options].concat();
        let command = pillion_in(&namespace, &arguments);
        let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
        assert!(attach.next_line().starts_with("pillion: bundling "));
        let unmatched = format!("rule 1 covers nothing: no cgroup named {pattern}");
        attach.expect_line(&format!("warning: {unmatched}"));
        assert_eq!(status(&namespace)["notes"][0], unmatched);
        let groups = ["a", "b"].map(|it| TestCgroup::create(&format!("coming-{id}-{it}")));
        attach.expect_line(&format!("resolved: {unmatched}"));
        let other = TestCgroup::create(&format!("other-{id}"));
        let streams = [&groups[0], &groups[1], &other].map(|it| it.stream(&namespace));
        eventually("only the matching cgroups are covered", || {
            status(&namespace)["active_connections"] == 2
        });
        drop(groups);
        attach.expect_line(&format!("warning: {unmatched}"));
        assert_eq!(status(&namespace)["notes"][0], unmatched);
        drop(other);
        for (mut child, _) in streams {
            let _ = child.wait();
        }
        attach.stop_without_stats();
    }
}

#[test]
fn rule_follows_cgroups_while_another_rule_exceeds_capacity() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let name = format!("many-{}", std::process::id());
    let _parent = TestCgroup::create(&name);
    let create = |kind: &str, number| TestCgroup::create(&format!("{name}/{kind}-{number}"));
    let _many: Vec<_> = (0..8_200).map(|it| create("many", it)).collect();
    let _first = create("few", 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rule = |kind| format!("[[rule]]\nthin = \"always\"\ncgroup = \"/{name}/{kind}-*\"\n");
    fs::write(&file, ["many", "few"].map(rule).concat()).unwrap();
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let command = pillion_in(&namespace, &arguments);
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    assert!(
        attach
            .next_line()
            .starts_with("pillion: bundling by 2 rules")
    );
    attach.expect_line(
        "warning: rule 1: matches only some of its cgroups, because all rules together are limited \
         to 8192; name a cgroup above them",
    );
    let second = create("few", 1);
    let (mut child, listener) = second.stream(&namespace);
    eventually("the new cgroup is covered", || {
        status(&namespace)["active_connections"] == 1
    });
    drop((second, listener));
    let _ = child.wait();
    attach.stop_without_stats();
}

#[test]
fn advise_observes_only_matching_new_cgroup() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let name = format!("watched-{}", std::process::id());
    let cgroup = format!("/{name}");
    let arguments = ["advise", "--json", "--dev", "lo", "--cgroup", &cgroup];
    let mut advise = pillion_in(&namespace, &arguments);
    advise.stdout(Stdio::piped()).stderr(Stdio::piped());
    let advise = advise.spawn().unwrap();
    await_attached(advise.id());
    let groups = [name.clone(), format!("other-{name}")].map(|it| TestCgroup::create(&it));
    let streams = [&groups[0], &groups[1]].map(|it| it.stream(&namespace));
    eventually("the connection is observed", || {
        let output = pillion_in(&namespace, &["flows", "--json"])
            .output()
            .unwrap();
        let flows: Value = serde_json::from_slice(&output.stdout).unwrap();
        let port = streams[0].1.local_addr().unwrap().to_string();
        let mut flows = flows.as_array().unwrap().iter();
        flows.any(|flow| flow["peer"] == port.as_str() && flow["new_bytes"] != 0)
    });
    send_signal(&advise, Signal::SIGTERM);
    let output = advise.wait_with_output().unwrap();
    drop(groups);
    for (mut child, _) in streams {
        let _ = child.wait();
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["connections"], 1, "{report:#}");
    let log = stderr(&output);
    let unmatched = format!("rule 1 covers nothing: no cgroup named {cgroup}");
    for line in [
        format!("pillion: warning: {unmatched}\n"),
        format!("pillion: resolved: {unmatched}\n"),
    ] {
        assert!(log.contains(&line), "{log}");
    }
}

#[test]
fn namespace_pattern_attaches_and_detaches_namespaces() {
    needs_root!();
    let own = namespace_with_loopback();
    let options = ["--dev", "lo", "--netns", "pillion-test-*-coming"];
    let mut attach = Attach::start_in(&own, &options);
    attach.expect_line(
        "warning: no network namespace pillion-test-*-coming exists: nothing is covered there",
    );
    let namespace = namespace_with_loopback();
    let sleeper = Sleeper::of(&namespace);
    let name = NetnsName::assign_with_suffix(&sleeper, "-coming");
    attach.expect_line(&format!("attached to network namespace {}", name.0));
    let log = [attach.next_line(), attach.next_line()];
    let lo = format!("pillion: attached to lo in {}", name.0);
    assert!(log.contains(&lo), "{log:?}");
    let group = TestCgroup::create(&format!("coming-{}", sleeper.pid()));
    let stream = group.stream(&namespace);
    eventually("the connection is covered", || {
        status(&own)["active_connections"] != 0
    });
    drop(group);
    drop(stream);
    name.delete();
    let log = [attach.next_line(), attach.next_line()];
    let gone = format!("pillion: detached from network namespace {}", name.0);
    assert!(log.contains(&gone), "{log:?}");
    eventually("its devices are released", || {
        status(&own)["devices"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    attach.stop();
}

#[test]
fn namespace_name_before_its_mount_is_no_failure() {
    needs_root!();
    let own = namespace_with_loopback();
    let name = format!("pillion-test-{}-nascent", std::process::id());
    let file = Path::new("/run/netns").join(&name);
    // No output file here: pillion would keep the right to read any file for it.
    let pattern = "pillion-test-*-nascent";
    let arguments = ["attach", "--all", "--dev", "lo", "--netns", pattern];
    let mut attach = Attach::spawn(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    let first = attach.next_line();
    assert!(
        first.starts_with("pillion: bundling all connections on "),
        "{first}"
    );
    attach.expect_line(
        "warning: no network namespace pillion-test-*-nascent exists: nothing is covered there",
    );
    // Like `ip netns add`, but slowly.
    fs::create_dir_all("/run/netns").unwrap();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o000);
    drop(options.open(&file).unwrap());
    thread::sleep(Duration::from_millis(2500));
    let status = status(&own);
    fs::remove_file(&file).unwrap();
    assert_eq!(status["failures"], Value::Array(Vec::new()), "{status}");
    attach.stop_without_stats();
}

#[test]
fn reload_error_while_waiting_is_in_status_once_ready() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let sleeper = Sleeper::of(&namespace);
    let name = format!("pillion-test-{}-awaited", sleeper.pid());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, format!("netns = \"{name}\"\n[[rule]]\n")).unwrap();
    let arguments = ["--wait", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let command = pillion_in(&own, &[&["attach"], &arguments[..]].concat());
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    while !attach.next_line().contains("waiting: no network namespace") {}
    fs::write(&file, "netns = 3.5").unwrap();
    let pid = Pid::from_raw(attach.process.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    while !attach
        .next_line()
        .contains("not reloaded: the old rules stay in force")
    {}
    NetnsName::attach(&name, &sleeper.pid());
    let _name = NetnsName(name);
    while !attach.next_line().contains("bundling by 1 rule") {}
    let mut failures = String::new();
    eventually("the connection is listed", || {
        failures = status(&own)["failures"].to_string();
        failures.contains("not reloaded")
    });
    attach.stop_without_stats();
}

#[test]
fn restricted_cgroup_namespace_is_reported() {
    needs_root!();
    let group = TestCgroup::create(&format!("sidecar-{}", std::process::id()));
    let namespace = namespace_with_loopback();
    // A connection of another container in the same network namespace.
    let foreign = namespace.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    });
    let foreign = foreign.unwrap();
    let mount = pillion_bpf::cgroup2_mount().unwrap();
    let script = format!(
        "echo 0 > {procs_file}/cgroup.procs && exec unshare --cgroup --mount sh -c \
         'umount -l {mount} && mount -t cgroup2 none {mount} && exec {PILLION} attach --all --dev lo --user-timeout 5000ms'",
        procs_file = group.0.display(),
        mount = mount.display(),
    );
    let mut shell = namespace.command("sh");
    shell.args(["-c", &script]);
    let mut attach = Attach::spawn(shell, tempfile::tempdir().unwrap());
    let log = [attach.next_line(), attach.next_line()];
    let restricted = format!(
        "pillion: warning: only sockets of this container are visible, because {} is a part of the \
         host's cgroups: to cover others, give it the host's cgroup namespace and /sys/fs/cgroup",
        mount.display()
    );
    assert!(log.contains(&restricted), "{log:?}");
    let notes = status(&namespace)["notes"][0].to_string();
    assert!(notes.contains("cgroup namespace"), "{notes}");
    for end in &foreign {
        assert_eq!(getsockopt(end, TcpUserTimeout).unwrap(), 0);
    }
    let flows = pillion_in(&namespace, &["flows", "--json"]).output();
    let flows: Vec<Value> = serde_json::from_slice(&flows.unwrap().stdout).unwrap();
    let local = foreign[0].local_addr().unwrap().to_string();
    assert!(
        flows
            .iter()
            .all(|flow| flow["local"] != local.as_str() && flow["peer"] != local.as_str())
    );
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    assert_eq!(status.status.code(), Some(3), "{}", stdout(&status));
    send_signal(&attach.process, Signal::SIGTERM);
    attach.process.wait().unwrap();
}

#[test]
fn ip_netns_exec_error_names_netns_option() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let name = NetnsName::assign(&Sleeper::of(&namespace));
    let mut ip = Command::new("ip");
    let arguments = [
        "netns", "exec", &name.0, PILLION, "attach", "--all", "--dev", "lo",
    ];
    let output = ip.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--netns"), "{}", stderr(&output));
}

#[test]
fn peer_may_be_host_name() {
    needs_root!();
    let dry = |peer: &str| pillion(&["attach", "--peer", peer, "--dev", "lo", "--dry-run"]);
    let output = dry("localhost");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("peer localhost"),
        "{}",
        stdout(&output)
    );
    let output = dry("no-such-host.invalid");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("no address"),
        "{}",
        stderr(&output)
    );
}
