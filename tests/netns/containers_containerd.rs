//! Pod containers of a containerd started by the test, with the annotations that the kubelet sets.
//! Skipped without containerd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use pillion_lab::Namespace;

use crate::common::*;
use crate::containers::{Beside, Cgroups, id};
use crate::containers_daemon::{Daemon, cgroup_of};
use crate::containers_stream::{PROGRAMS, SEND, Stream, has_bundled, root_of_a_container};
use crate::devices::Attach;
use crate::namespaces::Name;

struct Containerd {
    // Dropped before its folder is removed.
    daemon: Daemon,
    host: Beside,
    /// Namespace in which pillion runs.
    here: Namespace,
    /// Network namespace of the pods.
    pod: Name,
    stream: Stream,
}

impl Containerd {
    /// Starts containerd; `None`, with a message, if it cannot run containers.
    fn find() -> Option<Self> {
        let stream = Stream::prepare();
        let pod = Name::give(&stream.resident);
        let mut host = Beside::with(Cgroups::AsHere);
        host.has_folder_for("/run/containerd");
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
        let here = namespace_with_loopback();
        let daemon = Daemon::begin(&host, Cgroups::AsHere, &here, &words);
        let mut containerd = Self {
            daemon,
            host,
            here,
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
        let (host, here) = (&self.host, &self.here);
        let is_answered = || {
            let output = client(host, here, &["version"]).output();
            output.is_ok_and(|it| it.status.success())
        };
        if !self.daemon.answers(is_answered) {
            return Err(self.daemon.said());
        }
        self.run(&id("e0"), "probe", None, &["/usr/bin/true"])
    }

    /// Runs a container of this host's programs as part of a pod. `None` as name makes it the pod's
    /// sandbox.
    fn run(&self, id: &str, pod: &str, name: Option<&str>, words: &[&str]) -> Result<(), String> {
        let mut run = client(&self.host, &self.here, &["run", "--detach"]);
        let pillion = [(PILLION, "/pillion"), (PILLION_LAB, "/pillion-lab")]
            .map(|(src, dst)| format!("type=bind,src={src},dst={dst},options=bind:ro"));
        let programs = PROGRAMS.map(|it| format!("type=bind,src={it},dst={it},options=rbind:ro"));
        for mount in programs.iter().chain(&pillion) {
            run.args(["--mount", mount]);
        }
        let of_a_pod = [
            ("io.kubernetes.cri.sandbox-namespace", Some("prod")),
            ("io.kubernetes.cri.sandbox-name", Some(pod)),
            ("io.kubernetes.cri.container-name", name),
        ];
        for (key, value) in of_a_pod {
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
        run.arg(root_of_a_container(self.host.path()))
            .arg(id)
            .args(words);
        match run.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(stderr(&output)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn socket(host: &Beside) -> String {
    host.path().join("socket").display().to_string()
}

/// Builds a `ctr` command. It shares the daemon's environment because it also writes to its folder.
fn client(host: &Beside, here: &Namespace, words: &[&str]) -> Command {
    let socket = socket(host);
    let how = ["ctr", "--address", &socket, "--namespace", "k8s.io"];
    host.command(here, &[&how, words].concat())
}

#[test]
fn containers_of_a_pod_that_containerd_runs_are_followed_by_their_names() {
    needs_root!();
    let Some(containerd) = Containerd::find() else {
        return;
    };
    let unique = std::process::id();
    let (pod, other) = (format!("game-{unique}"), format!("shop-{unique}"));
    let wanted = format!("prod/game-{unique}/ser*");
    let arguments = ["attach", "--thin", "always", "--container", &wanted];
    let (host, here) = (&containerd.host, &containerd.here);
    let command = host.pillion(here, &arguments);
    let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
    assert!(attach.said().starts_with("pillion: bundling "));
    attach.says(&format!(
        "covers nothing: rule 1: no container is called {wanted}"
    ));
    let begin = |digits: &str, pod: &str, name| {
        let id = id(digits);
        let words: &[&str] = match name {
            Some(_) => &SEND,
            None => &["/usr/bin/sleep", "60"],
        };
        containerd.run(&id, pod, name, words).unwrap();
        id
    };
    begin("e1", &pod, None);
    begin("e2", &pod, Some("sidecar"));
    begin("e3", &other, Some("server"));
    let server = begin("e4", &pod, Some("server"));
    let called = format!("container prod/{pod}/server");
    attach.hears(&format!("{called} has come: bundling there, too"));
    let flows = || {
        let flows = host.json(here, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().clone();
        let namespace = format!("/proc/{}/ns/net", containerd.stream.resident.pid());
        let namespace = fs::metadata(namespace).unwrap().ino();
        flows.retain(|flow| flow["netns"] == namespace);
        flows
    };
    within(Duration::from_secs(20), "the container's stream is bundled", || {
        flows().iter().any(has_bundled)
    });
    // One of the three containers that send in this namespace.
    let flows = flows();
    assert_eq!(flows.len(), 1, "{flows:#?}");
    assert_eq!(flows[0]["unit"], called);
    let kill = ["task", "kill", "--signal", "KILL", &server];
    assert!(client(host, here, &kill).status().unwrap().success());
    attach.hears(&format!("{called} has gone"));
    attach.interrupt();
}
