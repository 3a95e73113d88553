//! Containers of a Docker engine started by the test. Skipped without Docker.

use std::process::{Command, Output};
use std::time::Duration;

use pillion_bpf::{cgroup1_mount, cgroup2_mount};
use pillion_lab::Namespace;
use serde_json::{Value, json};

use crate::common::*;
use crate::containers::{Beside, Cgroups};
use crate::containers_daemon::{Daemon, cgroup_of};
use crate::containers_stream::{SEND, Stream, has_bundled, root_of_a_container, volumes};
use crate::devices::Attach;

/// Engine on the sending host of a path. Its bridge is there too, so the containers' traffic
/// crosses the path.
struct Docker {
    // Dropped before its folder is removed.
    daemon: Daemon,
    host: Beside,
    /// Namespace in which pillion runs.
    here: Namespace,
    _stream: Stream,
}

impl Docker {
    /// Starts Docker; `None`, with a message, if it cannot run containers. `cgroups` selects the hierarchies that it sees, `options` its further options.
    fn find(cgroups: Cgroups, options: &[&str]) -> Option<Self> {
        let stream = Stream::prepare();
        let sender = &stream.pair.sender.namespace;
        route_to_containers(&stream.pair.receiver.namespace);
        let mut host = Beside::with(match cgroups {
            Cgroups::Version2 => Cgroups::Version2,
            Cgroups::Version1 | Cgroups::AsHere => Cgroups::AsHere,
        });
        // A containerd of the host would run the containers elsewhere.
        host.has_folder_for("/run/containerd");
        // Subordinate ids for user namespaces (`userns-remap`).
        for file in ["/etc/subuid", "/etc/subgid"] {
            host.has_file_for(file, "nobody:200000:65536\nnogroup:200000:65536\n");
        }
        let at = |name: &str| host.path().join(name).display().to_string();
        let (exec, pid, socket) = (at("exec"), at("pid"), format!("unix://{}", at("socket")));
        let parent = format!("--cgroup-parent=/{}", cgroup_of(&host));
        let own = [
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
        let daemon = Daemon::begin(&host, cgroups, sender, &[&own, options].concat());
        let mut docker = Self {
            daemon,
            host,
            here: namespace_with_loopback(),
            _stream: stream,
        };
        let prepared = docker.prepare();
        if let Err(why) = &prepared {
            println!("left out: Docker cannot run containers here: {why}");
        }
        prepared.ok().map(|()| docker)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let done = |mut command: Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(stderr(&output)),
            Err(error) => Err(error.to_string()),
        };
        let host = &self.host;
        if !self
            .daemon
            .answers(|| done(client(host, &["version"])).is_ok())
        {
            return Err(self.daemon.said());
        }
        // The image contains only folders, over which this host's programs are mounted.
        let root = root_of_a_container(host.path());
        let image = host.path().join("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&image).arg("-C").arg(root).arg(".");
        done(tar)?;
        done(client(host, &["import", image.to_str().unwrap(), "empty"]))?;
        match self.run("probe", &["--rm"], &["/usr/bin/true"]) {
            output if output.status.success() => Ok(()),
            output => Err(stderr(&output)),
        }
    }

    fn tells(&self, words: &[&str]) {
        let output = client(&self.host, words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    }

    /// Runs a container of this host's programs with further options of `docker run`.
    fn run(&self, name: &str, options: &[&str], words: &[&str]) -> Output {
        let volumes = volumes();
        let volumes: Vec<_> = volumes.iter().flat_map(|it| ["--volume", it]).collect();
        let how = ["run", "--detach", "--name", name];
        let words = [&how[..], options, &volumes, &["empty"], words].concat();
        client(&self.host, &words).output().unwrap()
    }

    fn begin(&self, name: &str, options: &[&str]) {
        let output = self.run(name, options, &SEND);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Starts a pillion that covers these containers.
    fn attach(&self, options: &[&str]) -> Attach {
        let arguments = [&["attach", "--thin", "always"], options].concat();
        let command = self.host.pillion(&self.here, &arguments);
        let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
        assert!(attach.said().starts_with("pillion: bundling "));
        attach
    }

    fn covers(&self, count: u64) {
        eventually(&format!("{count} connections are covered"), || {
            self.host.status(&self.here)["connections"] == count
        });
    }

    /// Returns the flows of this container.
    fn flows(&self, name: &str) -> Vec<Value> {
        let flows = self.host.json(&self.here, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().clone();
        flows.retain(|flow| flow["unit"] == format!("container {name}"));
        flows
    }
}

fn client(host: &Beside, words: &[&str]) -> Command {
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

fn come(name: &str) -> String {
    format!("container {name} has come: bundling there, too")
}

fn gone(name: &str) -> String {
    format!("container {name} has gone")
}

#[test]
fn dockers_containers_are_followed_by_name_and_label() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &[]) else {
        return;
    };
    let [first, second, third] = ["web_1.a", "web_2", "other"].map(unique);
    let pattern = format!("web_*-{}", std::process::id());
    let mut attach = docker.attach(&["--container", &pattern, "--container-label", "team=r?d"]);
    let idle = format!("rule 1: no container is called {pattern} and labelled team=r?d");
    attach.says(&format!("covers nothing: {idle}"));
    docker.begin(&second, &["--label=team=blue"]);
    docker.begin(&third, &["--label=team=red"]);
    docker.begin(&first, &["--label=team=red"]);
    attach.hears(&come(&first));
    let flow = || docker.flows(&first).pop().unwrap_or_default();
    let limit = Duration::from_secs(20);
    within(limit, "the container's stream is bundled", || has_bundled(&flow()));
    assert_eq!(flow()["process"], "pillion");
    docker.covers(1);
    // A process started later in the container belongs to it as well.
    docker.tells(&[&["exec", "--detach", &first], &SEND[..]].concat());
    docker.covers(2);
    docker.tells(&["restart", "--time", "0", &first]);
    attach.hears(&gone(&first));
    attach.hears(&come(&first));
    within(limit, "the container's stream is bundled again", || has_bundled(&flow()));
    docker.covers(1);
    docker.tells(&["rm", "--force", &first]);
    attach.hears(&gone(&first));
    docker.covers(0);
    attach.interrupt();
}

#[test]
fn a_container_of_docker_that_is_renamed_is_let_go_and_taken_by_its_new_name() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &[]) else {
        return;
    };
    let [before, other, after] = ["web-a", "db", "web-b"].map(unique);
    let mut attach = docker.attach(&["--container", "web-?-*"]);
    docker.begin(&before, &[]);
    attach.hears(&come(&before));
    attach.hears(&format!("eth0 in {}", come(&before)));
    docker.covers(1);
    docker.tells(&["rename", &before, &other]);
    attach.hears(&gone(&before));
    let status = || docker.host.status(&docker.here);
    eventually("the container is released", || status()["devices"] == json!([]));
    docker.covers(0);
    docker.tells(&["rename", &other, &before]);
    attach.hears(&format!("eth0 in {}", come(&before)));
    docker.tells(&["rename", &before, &after]);
    attach.hears(&come(&after));
    let device = format!("eth0 in container {after}");
    eventually("the device shows the new name", || status()["devices"] == json!([device]));
    docker.covers(1);
    attach.interrupt();
}

#[test]
fn dockers_containers_that_share_a_network_namespace_are_told_apart() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::AsHere, &[]) else {
        return;
    };
    let [web, joined, beside] = ["web", "web-joined", "db"].map(unique);
    let [host, beside_host] = ["web-host", "db-host"].map(unique);
    let pattern = format!("web*-{}", std::process::id());
    let attach = docker.attach(&["--container", &pattern]);
    docker.begin(&web, &[]);
    let of_web = format!("--network=container:{web}");
    docker.begin(&beside, &[&of_web]);
    docker.begin(&joined, &[&of_web]);
    docker.begin(&beside_host, &["--network=host"]);
    docker.begin(&host, &["--network=host"]);
    docker.covers(3);
    for name in [&web, &joined, &host] {
        assert_eq!(docker.flows(name).len(), 1, "{name}");
    }
    attach.interrupt();
}

#[test]
fn a_container_of_docker_whose_users_are_others_of_the_host_has_its_name() {
    needs_root!();
    let Some(docker) = Docker::find(Cgroups::Version2, &["--userns-remap=nobody:nogroup"]) else {
        return;
    };
    let name = unique("mapped");
    let mut attach = docker.attach(&["--container", "mapped-*"]);
    docker.begin(&name, &[]);
    attach.hears(&come(&name));
    docker.covers(1);
    attach.interrupt();
}

#[test]
fn a_container_of_docker_that_has_cgroups_of_version_1_alone_is_told_of() {
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
    attach.says("covers nothing: rule 1: no container is called old-*");
    docker.begin(&name, &[]);
    let why = format!(
        "rule 1: container {name} has cgroups of version 1 alone, by which its sockets cannot be \
         told: have its runtime use version 2, or name its network namespace"
    );
    attach.hears(&format!("covers nothing: {why}"));
    assert_eq!(docker.host.status(&docker.here)["notes"], json!([why]));
    docker.tells(&["rm", "--force", &name]);
    attach.hears("covers nothing: rule 1: no container is called old-*");
    attach.interrupt();
}
