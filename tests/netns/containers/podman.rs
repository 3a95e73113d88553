//! Podman containers. Skipped without Podman.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use std::{fs, io};

use pillion_bpf::cgroup2_mount;
use pillion_lab::Namespace;

use super::EngineHost;
use super::engine::{SEND, Stream, container_root, has_bundled, volumes};
use crate::common::*;
use crate::devices::Attach;

/// Podman with its own container storage.
struct Podman {
    host: EngineHost,
    namespace: Namespace,
    runtime: &'static str,
}

impl Podman {
    /// Sets up Podman; `None`, with a message, if it cannot run containers.
    fn find() -> Option<Self> {
        let mut why = String::new();
        for runtime in ["crun", "runc"] {
            let podman = Self {
                host: EngineHost::new(),
                namespace: namespace_with_loopback(),
                runtime,
            };
            match podman.run("probe", &["--network=none"], &["/bin/true"]) {
                Ok(output) if output.status.success() => return Some(podman),
                Ok(output) => why = stderr(&output),
                Err(error) => why = error.to_string(),
            }
        }
        let why = why.lines().last().unwrap_or_default();
        println!("left out: Podman cannot run containers here: {why}");
        None
    }

    fn command(&self, words: &[&str]) -> Command {
        let path_of = |folder: &str| self.host.path().join(folder).to_str().unwrap().to_owned();
        let (state, temporary) = (path_of("state"), path_of("temporary"));
        let options = ["--cgroup-manager", "cgroupfs", "--runtime", self.runtime];
        let folders = ["--runroot", &state, "--tmpdir", &temporary];
        let podman = [&["podman"], &options[..], &folders, words].concat();
        self.host.command(&self.namespace, &podman)
    }

    /// Runs a container of this host's programs with further options of `podman run`.
    fn run(&self, name: &str, options: &[&str], words: &[&str]) -> io::Result<Output> {
        let root = container_root(self.host.path());
        let root = root.to_str().unwrap();
        let volumes = volumes();
        let volumes: Vec<_> = volumes.iter().flat_map(|it| ["--volume", it]).collect();
        // The runtime's default limits may exceed the limits of this process.
        let limits = [
            "--ulimit=nofile=1024",
            "--ulimit=nproc=1024",
            "--pids-limit=-1",
        ];
        let base_arguments = ["run", "--detach", "--name", name];
        let words = [
            &base_arguments[..],
            &limits,
            options,
            &volumes,
            &["--rootfs", root],
            words,
        ]
        .concat();
        self.command(&words).output()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self
            .command(&["rm", "--all", "--force", "--time", "0"])
            .output();
        let _ = self.command(&["umount", "--all"]).output();
        if let Ok(mount) = cgroup2_mount() {
            remove_empty(&mount.join("libpod_parent"));
        }
    }
}

fn start(stream: &Stream, podman: &Podman, container: &str) {
    // Podman joins the network namespace of this process.
    let network = format!("ns:/proc/{}/ns/net", stream.sleeper.pid());
    let options = ["--annotation=team=red", "--network", &network];
    let output = podman.run(container, &options, &SEND).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn remove_empty(cgroup: &PathBuf) {
    let inner = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for folder in inner.filter(|it| it.path().is_dir()) {
        let _ = fs::remove_dir(folder.path());
    }
    let _ = fs::remove_dir(cgroup);
}

#[test]
fn podman_containers_are_matched_by_name_and_annotation() {
    needs_root!();
    let Some(podman) = Podman::find() else {
        return;
    };
    let stream = Stream::prepare();
    let own = &podman.namespace;
    let options = [
        "--container",
        "web-*",
        "--container-label",
        "team=r?d",
        "--dev",
        "tap0",
    ];
    let arguments = [&["attach", "--thin", "always"], &options[..]].concat();
    let command = podman.host.pillion(own, &arguments);
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    assert!(attach.next_line().starts_with("pillion: bundling "));
    let unmatched = "rule 1 covers nothing: no container named web-* and labelled team=r?d";
    attach.expect_line(&format!("warning: {unmatched}"));
    start(&stream, &podman, "web-1");
    let log = [(); 3].map(|()| attach.next_line());
    let attached = "pillion: attached to container web-1";
    assert!(log.contains(&attached.to_owned()), "{log:?}");
    let flow = || stream.flow(&podman.host, &podman.namespace);
    eventually("the container's stream is bundled", || has_bundled(&flow()));
    assert_eq!(flow()["unit"], "container web-1");
    assert_eq!(flow()["process"], "pillion-lab");
    let output = podman
        .command(&["rm", "--force", "--time", "0", "web-1"])
        .output();
    assert!(output.unwrap().status.success());
    let log = [(); 2].map(|()| attach.next_line());
    let detached = "pillion: detached from container web-1";
    assert!(log.contains(&detached.to_owned()), "{log:?}");
    attach.stop_without_stats();
}

/// Returns the options that give a Podman container the privileges of the DaemonSet.
fn daemonset_options() -> Vec<String> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/kubernetes/daemonset.yaml"
    );
    let file = fs::read_to_string(file).unwrap();
    let within = |key: &str, delimiters: [char; 2]| {
        let after = file.split_once(key).unwrap().1.trim_start();
        let value = after.strip_prefix(delimiters[0]).unwrap();
        value.split_once(delimiters[1]).unwrap().0.to_owned()
    };
    let capabilities = within("add:", ['[', ']']).replace(' ', "");
    let mut options = vec![
        "--cap-drop=all".to_owned(),
        format!("--cap-add={capabilities}"),
    ];
    for (log, option) in [
        ("hostNetwork: true", "--network=host"),
        ("hostPID: true", "--pid=host"),
        ("readOnlyRootFilesystem: true", "--read-only"),
        (
            "allowPrivilegeEscalation: false",
            "--security-opt=no-new-privileges",
        ),
        (
            "seccompProfile: {type: Unconfined}",
            "--security-opt=seccomp=unconfined",
        ),
    ] {
        assert!(file.contains(log), "{log}");
        options.push(option.to_owned());
    }
    let mounts = file.split("mountPath: ").skip(1);
    let mounts = mounts.map(|rest| rest.split([',', '}']).next().unwrap());
    for path in mounts.filter(|path| path.starts_with("/sys/")) {
        options.push(format!("--volume={path}:{path}:ro"));
    }
    options
}

#[test]
fn daemonset_privileges_suffice_to_cover_other_containers() {
    needs_root!();
    let Some(podman) = Podman::find() else {
        return;
    };
    let stream = Stream::prepare();
    let rights = daemonset_options();
    // Podman takes the role of the container runtime here.
    let files = ["--volume=/var/lib/containers:/var/lib/containers:ro"];
    let options: Vec<_> = rights.iter().map(String::as_str).chain(files).collect();
    let attach = [
        "/pillion",
        "attach",
        "--wait",
        "--container",
        "game-*",
        "--thin",
        "always",
    ];
    let output = podman.run("pillion", &options, &attach).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let log = || {
        let output = podman.command(&["logs", "pillion"]).output().unwrap();
        stdout(&output) + &stderr(&output)
    };
    eventually("pillion is ready", || {
        log().contains("no container named game-*")
    });
    start(&stream, &podman, "game-1");
    let flow = || stream.flow(&podman.host, &podman.namespace);
    let limit = Duration::from_secs(20);
    within(limit, "the container's stream is bundled", || {
        has_bundled(&flow())
    });
    assert!(log().contains("attached to container game-1"), "{}", log());
    assert!(
        !log().contains("only sockets of this container"),
        "{}",
        log()
    );
    drop(stream.pair);
}
