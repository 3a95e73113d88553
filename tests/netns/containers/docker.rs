//! Containers of a Docker engine started by the test. Skipped without Docker.

use std::process::{Command, Output};
use std::time::Duration;

use pillion_bpf::{cgroup1_mount, cgroup2_mount};
use pillion_lab::Namespace;
use serde_json::{Value, json};

use super::engine::{Daemon, SEND, Stream, cgroup_of, container_root, has_bundled, volumes};
use super::{Cgroups, EngineHost};
use crate::common::*;
use crate::devices::Attach;

/// Engine on the sending host of a path. Its bridge is there too, so the containers' traffic
/// crosses the path.
struct Docker {
    // Dropped before its folder is removed.
    daemon: Daemon,
    host: EngineHost,
    /// Namespace in which pillion runs.
    namespace: Namespace,
    _stream: Stream,
}

impl Docker {
    /// Starts Docker; `None`, with a message, if it cannot run containers. `cgroups` selects the
    /// hierarchies that it sees, `options` its further options.
    fn find(cgroups: Cgroups, options: &[&str]) -> Option<Self> {
        let stream = Stream::prepare();
        let sender = &stream.pair.sender.namespace;
        route_to_containers(&stream.pair.receiver.namespace);
        let mut host = EngineHost::with(match cgroups {
            Cgroups::Version2 => Cgroups::Version2,
            Cgroups::Version1 | Cgroups::AsHere => Cgroups::AsHere,
        });
        // A containerd of the host would run the containers elsewhere.
        host.mount_folder("/run/containerd");
        // Subordinate ids for user namespaces (`userns-remap`).
        for file in ["/etc/subuid", "/etc/subgid"] {
            host.mount_file(file, "nobody:200000:65536\nnogroup:200000:65536\n");
        }
        let path_of = |name: &str| host.path().join(name).display().to_string();
        let (exec, pid, socket) = (
            path_of("exec"),
            path_of("pid"),
            format!("unix://{}", path_of("socket")),
        );
        let parent = format!("--cgroup-parent=/{}", cgroup_of(&host));
        let base_options = [
            "dockerd",
            // Private folders, bridge and cgroup, and no packet-filter rules.
            "--data-root=/var/lib/docker",
            "--exec-root",
            &exec,
            "--pidfile",
            &pid,
            "--host",
            &socket,
            "--bip=10.79.0.1/24",
            "--iptables=false",
            "--ip-masq=false",
            "--storage-driver=vfs",
            &parent,
        ];
        let daemon = Daemon::start(&host, cgroups, sender, &[&base_options, options].concat());
        let mut docker = Self {
            daemon,
            host,
            namespace: namespace_with_loopback(),
            _stream: stream,
        };
        let prepared = docker.prepare();
        if let Err(why) = &prepared {
            println!("left out: Docker cannot run containers here: {why}");
        }
        prepared.ok().map(|()| docker)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let check = |mut command: Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(stderr(&output)),
            Err(error) => Err(error.to_string()),
        };
        let host = &self.host;
        if !self
            .daemon
            .wait_until_ready(|| check(client(host, &["version"])).is_ok())
        {
            return Err(self.daemon.last_log_line());
        }
        // The image contains only folders, over which this host's programs are mounted.
        let root = container_root(host.path());
        let image = host.path().join("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&image).arg("-C").arg(root).arg(".");
        check(tar)?;
        check(client(host, &["import", image.to_str().unwrap(), "empty"]))?;
        match self.run("probe", &["--rm"], &["/usr/bin/true"]) {
            output if output.status.success() => Ok(()),
            output => Err(stderr(&output)),
        }
    }

    fn run_docker(&self, words: &[&str]) {
        let output = client(&self.host, words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    }

    /// Runs a container of this host's programs with further options of `docker run`.
    fn run(&self, name: &str, options: &[&str], words: &[&str]) -> Output {
        let volumes = volumes();
        let volumes: Vec<_> = volumes.iter().flat_map(|it| ["--volume", it]).collect();
        let base_arguments = ["run", "--detach", "--name", name];
        let words = [&base_arguments[..], options, &volumes, &["empty"], words].concat();
        client(&self.host, &words).output().unwrap()
    }

    fn start(&self, name: &str, options: &[&str]) {
        let output = self.run(name, options, &SEND);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Starts a pillion that covers these containers.
    fn attach(&self, options: &[&str]) -> Attach {
        let arguments = [&["attach", "--thin", "always"], options].concat();
        let command = self.host.pillion(&self.namespace, &arguments);
        let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
        assert!(attach.next_line().starts_with("pillion: bundling "));
        attach
    }

    fn wait_for_connections(&self, count: u64) {
        eventually(&format!("{count} connections are covered"), || {
            self.host.status(&self.namespace)["active_connections"] == count
        });
    }

    /// Returns the flows of this container.
    fn flows(&self, name: &str) -> Vec<Value> {
        let flows = self.host.json(&self.namespace, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().clone();
        flows.retain(|flow| flow["unit"] == format!("container {name}"));
        flows
    }
}

fn client(host: &EngineHost, words: &[&str]) -> Command {
    let socket = format!("unix://{}", host.path().join("socket").display());
    let mut docker = Command::new("docker");
    docker.args(["--host", &socket]).args(words);
    docker
}

/// Adds a route from the receiver to the containers' bridge.
fn route_to_containers(receiver: &Namespace) {
    let route = ["route", "add", "10.79.0.0/24", "via", "10.77.0.1"];
    let status = receiver.command("ip").args(route).status();
    assert!(status.unwrap().success());
}

/// Returns a container name that no other test uses.
fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn attached(name: &str) -> String {
    format!("attached to container {name}")
}

fn detached(name: &str) -> String {
    format!("detached from container {name}")
}

#[test]
fn docker_containers_are_matched_by_name_and_label() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &[]) else {
        return;
    };
    let [first, second, third] = ["web_1.a", "web_2", "other"].map(unique);
    let pattern = format!("web_*-{}", std::process::id());
    let mut attach = docker.attach(&["--container", &pattern, "--container-label", "team=r?d"]);
    let unmatched =
        format!("rule 1 covers nothing: no container named {pattern} and labelled team=r?d");
    attach.expect_line(&format!("warning: {unmatched}"));
    docker.start(&second, &["--label=team=blue"]);
    docker.start(&third, &["--label=team=red"]);
    docker.start(&first, &["--label=team=red"]);
    attach.wait_for_line(&attached(&first));
    let flow = || docker.flows(&first).pop().unwrap_or_default();
    let limit = Duration::from_secs(20);
    within(limit, "the container's stream is bundled", || {
        has_bundled(&flow())
    });
    assert_eq!(flow()["process"], "pillion");
    docker.wait_for_connections(1);
    // A process started later in the container belongs to it as well.
    docker.run_docker(&[&["exec", "--detach", &first], &SEND[..]].concat());
    docker.wait_for_connections(2);
    docker.run_docker(&["restart", "--time", "0", &first]);
    attach.wait_for_line(&detached(&first));
    attach.wait_for_line(&attached(&first));
    within(limit, "the container's stream is bundled again", || {
        has_bundled(&flow())
    });
    docker.wait_for_connections(1);
    docker.run_docker(&["rm", "--force", &first]);
    attach.wait_for_line(&detached(&first));
    docker.wait_for_connections(0);
    attach.stop_without_stats();
}

#[test]
fn renamed_docker_container_is_matched_by_new_name() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &[]) else {
        return;
    };
    let [before, other, after] = ["web-a", "db", "web-b"].map(unique);
    let mut attach = docker.attach(&["--container", "web-?-*"]);
    docker.start(&before, &[]);
    attach.wait_for_line(&attached(&before));
    attach.wait_for_line(&format!("attached to eth0 in container {before}"));
    docker.wait_for_connections(1);
    docker.run_docker(&["rename", &before, &other]);
    attach.wait_for_line(&detached(&before));
    let status = || docker.host.status(&docker.namespace);
    eventually("the container is released", || {
        status()["devices"] == json!([])
    });
    docker.wait_for_connections(0);
    docker.run_docker(&["rename", &other, &before]);
    attach.wait_for_line(&format!("attached to eth0 in container {before}"));
    docker.run_docker(&["rename", &before, &after]);
    attach.wait_for_line(&attached(&after));
    let device = format!("eth0 in container {after}");
    eventually("the device shows the new name", || {
        status()["devices"] == json!([device])
    });
    docker.wait_for_connections(1);
    attach.stop_without_stats();
}

#[test]
fn docker_containers_in_one_namespace_are_distinguished() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::AsHere, &[]) else {
        return;
    };
    let [web, joined, other] = ["web", "web-joined", "db"].map(unique);
    let [host, other_on_host] = ["web-host", "db-host"].map(unique);
    let pattern = format!("web*-{}", std::process::id());
    let attach = docker.attach(&["--container", &pattern]);
    docker.start(&web, &[]);
    let network_of_web = format!("--network=container:{web}");
    docker.start(&other, &[&network_of_web]);
    docker.start(&joined, &[&network_of_web]);
    docker.start(&other_on_host, &["--network=host"]);
    docker.start(&host, &["--network=host"]);
    docker.wait_for_connections(3);
    for name in [&web, &joined, &host] {
        assert_eq!(docker.flows(name).len(), 1, "{name}");
    }
    attach.stop_without_stats();
}

#[test]
fn docker_container_with_user_remap_is_matched() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &["--userns-remap=nobody:nogroup"]) else {
        return;
    };
    let name = unique("mapped");
    let mut attach = docker.attach(&["--container", "mapped-*"]);
    docker.start(&name, &[]);
    attach.wait_for_line(&attached(&name));
    docker.wait_for_connections(1);
    attach.stop_without_stats();
}

#[test]
fn docker_container_with_cgroup_v1_only_is_reported() {
    needs_root!();
    if cgroup1_mount().is_none() || cgroup2_mount().is_err() {
        println!("left out: this host lacks one of both cgroup versions");
        return;
    }
    let Some(docker) = Docker::find(Cgroups::Version1, &[]) else {
        return;
    };
    let name = unique("old");
    let mut attach = docker.attach(&["--container", "old-*"]);
    attach.expect_line("warning: rule 1 covers nothing: no container named old-*");
    docker.start(&name, &[]);
    let why = format!(
        "rule 1: container {name} has only cgroups of version 1, which do not identify its \
         sockets: have its runtime use version 2, or name its network namespace"
    );
    attach.wait_for_line(&format!("warning: {why}"));
    assert_eq!(docker.host.status(&docker.namespace)["notes"], json!([why]));
    docker.run_docker(&["rm", "--force", &name]);
    attach.wait_for_line("warning: rule 1 covers nothing: no container named old-*");
    attach.stop_without_stats();
}
