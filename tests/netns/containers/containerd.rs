//! Pod containers of a containerd started by the test, with the annotations that the kubelet sets.
//! Skipped without containerd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use pillion_lab::Namespace;

use super::engine::{Daemon, PROGRAMS, SEND, Stream, cgroup_of, container_root, has_bundled};
use super::{Cgroups, EngineHost, id};
use crate::common::*;
use crate::devices::Attach;
use crate::namespaces::NetnsName;

struct Containerd {
    // Dropped before its folder is removed.
    daemon: Daemon,
    host: EngineHost,
    /// Namespace in which pillion runs.
    namespace: Namespace,
    /// Network namespace of the pods.
    pod: NetnsName,
    stream: Stream,
}

impl Containerd {
    /// Starts containerd; `None`, with a message, if it cannot run containers.
    fn find() -> Option<Self> {
        let stream = Stream::prepare();
        let pod = NetnsName::assign(&stream.sleeper);
        let mut host = EngineHost::with(Cgroups::AsHere);
        host.mount_folder("/run/containerd");
        let file = host.path().join("containerd.toml");
        // The CRI plugin needs the network, and the test does not use it.
        let root = host.path().join("root-of-containerd");
        let text = format!(
            "version = 2\nroot = {root:?}\nstate = \"/run/containerd\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n",
            socket(&host)
        );
        fs::write(&file, text).unwrap();
        let words = ["containerd", "--config", file.to_str().unwrap()];
        let namespace = namespace_with_loopback();
        let daemon = Daemon::start(&host, Cgroups::AsHere, &namespace, &words);
        let mut containerd = Self {
            daemon,
            host,
            namespace,
            pod,
            stream,
        };
        let prepared = containerd.prepare();
        if let Err(why) = &prepared {
            println!("left out: containerd cannot run containers here: {why}");
        }
        prepared.ok().map(|()| containerd)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let (host, namespace) = (&self.host, &self.namespace);
        let is_ready = || {
            let output = client(host, namespace, &["version"]).output();
            output.is_ok_and(|it| it.status.success())
        };
        if !self.daemon.wait_until_ready(is_ready) {
            return Err(self.daemon.last_log_line());
        }
        self.run(&id("e0"), "probe", None, &["/usr/bin/true"])
    }

    /// Runs a container of this host's programs as part of a pod. `None` as name makes it the pod's
    /// sandbox.
    fn run(&self, id: &str, pod: &str, name: Option<&str>, words: &[&str]) -> Result<(), String> {
        let mut run = client(&self.host, &self.namespace, &["run", "--detach"]);
        let pillion = [(PILLION, "/pillion"), (PILLION_LAB, "/pillion-lab")]
            .map(|(src, dst)| format!("type=bind,src={src},dst={dst},options=bind:ro"));
        let programs = PROGRAMS.map(|it| format!("type=bind,src={it},dst={it},options=rbind:ro"));
        for mount in programs.iter().chain(&pillion) {
            run.args(["--mount", mount]);
        }
        let annotations = [
            ("io.kubernetes.cri.sandbox-namespace", Some("prod")),
            ("io.kubernetes.cri.sandbox-name", Some(pod)),
            ("io.kubernetes.cri.container-name", name),
        ];
        for (key, value) in annotations {
            let annotation = value.map(|value| format!("{key}={value}"));
            run.args(annotation.iter().flat_map(|it| ["--annotation", it]));
        }
        // The path that the kubelet uses without the systemd cgroup driver.
        let cgroup = format!(
            "/{}/kubepods/burstable/pod-{pod}/{id}",
            cgroup_of(&self.host)
        );
        let network = format!("network:/run/netns/{}", self.pod.0);
        run.args(["--cgroup", &cgroup, "--with-ns", &network, "--rootfs"]);
        run.arg(container_root(self.host.path()))
            .arg(id)
            .args(words);
        match run.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(stderr(&output)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn socket(host: &EngineHost) -> String {
    host.path().join("socket").display().to_string()
}

/// Builds a `ctr` command. It shares the daemon's environment because it also writes to its folder.
fn client(host: &EngineHost, namespace: &Namespace, words: &[&str]) -> Command {
    let socket = socket(host);
    let base_arguments = ["ctr", "--address", &socket, "--namespace", "k8s.io"];
    host.command(namespace, &[&base_arguments, words].concat())
}

#[test]
fn containerd_pod_containers_are_matched_by_name() {
    needs_root!();
    let Some(containerd) = Containerd::find() else {
        return;
    };
    let unique = std::process::id();
    let (pod, other) = (format!("game-{unique}"), format!("shop-{unique}"));
    let pattern = format!("prod/game-{unique}/ser*");
    let arguments = ["attach", "--thin", "always", "--container", &pattern];
    let (host, namespace) = (&containerd.host, &containerd.namespace);
    let command = host.pillion(namespace, &arguments);
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    assert!(attach.next_line().starts_with("pillion: bundling "));
    attach.expect_line(&format!(
        "warning: rule 1 covers nothing: no container named {pattern}"
    ));
    let start = |digits: &str, pod: &str, name| {
        let id = id(digits);
        let words: &[&str] = match name {
            Some(_) => &SEND,
            None => &["/usr/bin/sleep", "60"],
        };
        containerd.run(&id, pod, name, words).unwrap();
        id
    };
    start("e1", &pod, None);
    start("e2", &pod, Some("sidecar"));
    start("e3", &other, Some("server"));
    let server = start("e4", &pod, Some("server"));
    let description = format!("container prod/{pod}/server");
    attach.wait_for_line(&format!("attached to {description}"));
    let flows = || {
        let flows = host.json(namespace, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().clone();
        let file = format!("/proc/{}/ns/net", containerd.stream.sleeper.pid());
        let inode = fs::metadata(file).unwrap().ino();
        flows.retain(|flow| flow["netns"] == inode);
        flows
    };
    within(
        Duration::from_secs(20),
        "the container's stream is bundled",
        || flows().iter().any(has_bundled),
    );
    // One of the three containers that send in this namespace.
    let flows = flows();
    assert_eq!(flows.len(), 1, "{flows:#?}");
    assert_eq!(flows[0]["unit"], description);
    let kill = ["task", "kill", "--signal", "KILL", &server];
    assert!(client(host, namespace, &kill).status().unwrap().success());
    attach.wait_for_line(&format!("detached from {description}"));
    attach.stop_without_stats();
}
