//! Containers selected by name and label, with files as runtimes write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::cgroup2_mount;
use pillion_lab::Namespace;
use serde_json::{Value, json};

use crate::coming::Group;
use crate::common::*;
use crate::devices::Attach;

/// Host environment with a `/var/lib` folder of its own, seen by commands run in it.
pub struct Beside {
    folder: tempfile::TempDir,
    cgroups: Cgroups,
    /// Bind mounts: the source, and the path of the host that it replaces.
    mounts: Vec<(PathBuf, &'static str)>,
}

/// Cgroup hierarchies that commands in an environment see.
#[derive(Clone, Copy)]
pub enum Cgroups {
    /// Only version 2, mounted at the usual path, where Podman expects it.
    Version2,
    /// This host's hierarchies without version 2.
    Version1,
    /// This host's hierarchies.
    AsHere,
}

impl Beside {
    pub fn new() -> Self {
        Self::with(Cgroups::Version2)
    }

    pub fn with(cgroups: Cgroups) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            cgroups,
            mounts: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Mounts a new folder over a path of the host.
    pub fn has_folder_for(&mut self, path: &'static str) {
        let folder = self.path().join(path.replace('/', "-"));
        fs::create_dir(&folder).unwrap();
        self.mounts.push((folder, path));
    }

    /// Mounts a file with this text over a file of the host, if that exists.
    pub fn has_file_for(&mut self, path: &'static str, text: &str) {
        if Path::new(path).exists() {
            let file = self.path().join(path.replace('/', "-"));
            fs::write(&file, text).unwrap();
            self.mounts.push((file, path));
        }
    }

    /// Builds a command that runs in this environment.
    pub fn command(&self, namespace: &Namespace, words: &[&str]) -> Command {
        let mut shell = namespace.command("unshare");
        shell.args(["--mount", "sh", "-c", &self.script(self.cgroups), "sh"]);
        shell.args(words);
        hears_all_signals(&mut shell);
        shell
    }

    /// Returns the shell script that mounts everything and then runs its arguments.
    pub fn script(&self, cgroups: Cgroups) -> String {
        const VERSION_2: &str = "{ [ -e /sys/fs/cgroup/cgroup.controllers ] || \
            { umount -l -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }; } && ";
        let binds = self.mounts.iter().map(|(from, to)| {
            let from = from.display();
            format!("{{ [ -e {to} ] || mkdir -p {to}; }} && mount --bind {from} {to} && ")
        });
        let binds: String = binds.collect();
        let folder = self.path().display();
        let cgroups = match cgroups {
            Cgroups::Version2 => VERSION_2.to_owned(),
            Cgroups::Version1 => format!("umount -l {} && ", cgroup2_mount().unwrap().display()),
            Cgroups::AsHere => String::new(),
        };
        format!("{binds}mount --bind {folder} /var/lib && {cgroups}exec \"$@\"")
    }

    pub fn pillion(&self, namespace: &Namespace, arguments: &[&str]) -> Command {
        self.command(namespace, &[&[PILLION], arguments].concat())
    }

    pub fn json(&self, namespace: &Namespace, arguments: &[&str]) -> Value {
        let output = self.pillion(namespace, arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Writes a container's configuration file as Docker does.
    pub fn has_of_docker(&self, id: &str, name: &str) {
        let folder = self.path().join("docker/containers").join(id);
        fs::create_dir_all(&folder).unwrap();
        let config = json!({"Name": format!("/{name}"), "Config": {"Labels": {"app": name}}});
        fs::write(folder.join("config.v2.json"), config.to_string()).unwrap();
    }

    /// Returns the status of the pillion in this namespace.
    pub fn status(&self, namespace: &Namespace) -> Value {
        self.json(namespace, &["status", "--json"])[0].clone()
    }
}

/// Kills a child process and waits for it.
pub fn end(mut stream: Child) {
    let _ = stream.kill();
    let _ = stream.wait();
}

pub fn id(digits: &str) -> String {
    format!("{:0>64}", format!("{digits}{:x}", std::process::id()))
}

#[test]
fn containers_are_covered_and_named_as_they_come_and_no_longer_once_they_go() {
    needs_root!();
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = Beside::new();
    let unique = std::process::id();
    let name = format!("game-{unique}");
    let ids = [id("a"), id("b")];
    host.has_of_docker(&ids[0], &name);
    host.has_of_docker(&ids[1], "another");
    let rules = host.path().join("rules.toml");
    let text = format!("[[rule]]\nthin = \"always\"\ncontainer-label = \"app=game-{unique}\"\n");
    fs::write(&rules, text).unwrap();
    let wanted = format!("game-{unique}*");
    for (options, called) in [
        (
            ["--container", &wanted, "--thin", "always"].as_slice(),
            format!("called {wanted}"),
        ),
        (
            &["--config", rules.to_str().unwrap()],
            format!("labelled app={name}"),
        ),
    ] {
        let arguments = [&["attach", "--dev", "lo"], options].concat();
        let command = host.pillion(&own, &arguments);
        let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
        let said = attach.said();
        assert!(said.starts_with("pillion: bundling "), "{said}");
        let idle = format!("rule 1: no container is {called}");
        attach.says(&format!("covers nothing: {idle}"));
        assert_eq!(host.status(&own)["notes"][0], idle);
        let groups = ids
            .each_ref()
            .map(|id| Group::create(&format!("docker-{id}.scope")));
        let streams = groups.each_ref().map(|it| it.stream(&inner));
        let mut said = [(); 3].map(|()| attach.said());
        said.sort();
        let come = "has come: bundling there, too";
        assert_eq!(
            said,
            [
                format!("pillion: container {name} {come}"),
                format!("pillion: lo in container {name} {come}"),
                format!("pillion: no longer: covers nothing: {idle}"),
            ]
        );
        eventually("the container is covered", || {
            host.status(&own)["connections"] == 1
        });
        assert_eq!(host.status(&own)["notes"], json!([]));
        let flows = host.json(&own, &["flows", "--json"]);
        let port = streams[0].1.local_addr().unwrap().to_string();
        let mut flows = flows.as_array().unwrap().iter();
        let flow = flows.find(|flow| flow["peer"] == port.as_str()).unwrap();
        assert_eq!(flow["unit"], format!("container {name}"));
        drop(groups);
        streams.into_iter().for_each(|(stream, _)| end(stream));
        let said = [(); 2].map(|()| attach.said());
        assert!(
            said.contains(&format!("pillion: container {name} has gone")),
            "{said:?}"
        );
        assert!(
            said.contains(&format!("pillion: covers nothing: {idle}")),
            "{said:?}"
        );
        attach.interrupt();
    }
}

#[test]
fn a_file_that_is_read_again_may_name_other_containers() {
    needs_root!();
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = Beside::new();
    let (id, name) = (id("c"), format!("late-{}", std::process::id()));
    host.has_of_docker(&id, &name);
    let group = Group::create(&format!("docker-{id}.scope"));
    let (stream, _listener) = group.stream(&inner);
    let rules = host.path().join("rules.toml");
    let say = |container: &str| {
        let text = format!("[[rule]]\nthin = \"always\"\ncontainer = \"{container}\"\n");
        fs::write(&rules, text).unwrap();
    };
    say("none");
    let arguments = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let command = host.pillion(&own, &arguments);
    let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
    let said = attach.said();
    assert!(said.starts_with("pillion: bundling "), "{said}");
    attach.says("covers nothing: rule 1: no container is called none");
    say("late-*");
    kill(
        Pid::from_raw(attach.process.id().cast_signed()),
        Signal::SIGHUP,
    )
    .unwrap();
    let said = [(); 4].map(|()| attach.said()).join("\n");
    let places = "bundling in its own network namespace, containers called late-* now";
    assert!(said.contains(places), "{said}");
    assert!(said.contains("no longer: covers nothing"), "{said}");
    eventually("the container is covered", || {
        host.status(&own)["connections"] == 1
    });
    drop(group);
    end(stream);
    attach.interrupt();
}

#[test]
fn containers_are_chosen_beside_ports_and_not_beside_cgroups() {
    needs_root!();
    let output = pillion(&[
        "attach",
        "--container",
        "web",
        "--cgroup",
        "/a",
        "--dry-run",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let chosen = [
        "--container",
        "web-*",
        "--port",
        "80",
        "--dev",
        "lo",
        "--dry-run",
    ];
    let output = pillion(&[&["attach"], &chosen[..]].concat());
    let said = "connections with port 80 of containers called web-*";
    assert!(stdout(&output).contains(said), "{output:?}");
    for name in ["/web", "a//b"] {
        let output = pillion(&["attach", "--container", name, "--dry-run"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("NAMESPACE/POD"),
            "{}",
            stderr(&output)
        );
    }
}
