//! Containers selected by name and label, with files as runtimes write them.

mod containerd;
mod docker;
mod engine;
mod podman;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::{Container, ContainerSelector, Policy, Programs, Rule, cgroup2_mount};
use pillion_lab::Namespace;
use serde_json::{Value, json};

use crate::common::*;
use crate::devices::Attach;
use crate::wildcards::TestCgroup;

/// Host environment with a `/var/lib` folder of its own, seen by commands run in it.
pub struct EngineHost {
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

impl EngineHost {
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
    pub fn mount_folder(&mut self, path: &'static str) {
        let folder = self.path().join(path.replace('/', "-"));
        fs::create_dir(&folder).unwrap();
        self.mounts.push((folder, path));
    }

    /// Mounts a file with this text over a file of the host, if that exists.
    pub fn mount_file(&mut self, path: &'static str, text: &str) {
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
        reset_signals(&mut shell);
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
    pub fn add_docker_container(&self, id: &str, name: &str) {
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
pub fn reap(mut stream: Child) {
    let _ = stream.kill();
    let _ = stream.wait();
}

pub fn id(digits: &str) -> String {
    format!("{:0>64}", format!("{digits}{:x}", std::process::id()))
}

#[test]
fn containers_are_covered_from_start_to_stop() {
    needs_root!();
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = EngineHost::new();
    let unique = std::process::id();
    let name = format!("game-{unique}");
    let ids = [id("a"), id("b")];
    host.add_docker_container(&ids[0], &name);
    host.add_docker_container(&ids[1], "another");
    let rules = host.path().join("rules.toml");
    let text = format!("[[rule]]\nthin = \"always\"\ncontainer-label = \"app=game-{unique}\"\n");
    fs::write(&rules, text).unwrap();
    let pattern = format!("game-{unique}*");
    for (options, description) in [
        (
            ["--container", &pattern, "--thin", "always"].as_slice(),
            format!("named {pattern}"),
        ),
        (
            &["--config", rules.to_str().unwrap()],
            format!("labelled app={name}"),
        ),
    ] {
        let arguments = [&["attach", "--dev", "lo"], options].concat();
        let command = host.pillion(&own, &arguments);
        let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
        let log = attach.next_line();
        assert!(log.starts_with("pillion: bundling "), "{log}");
        let unmatched = format!("rule 1 covers nothing: no container {description}");
        attach.expect_line(&format!("warning: {unmatched}"));
        assert_eq!(host.status(&own)["notes"][0], unmatched);
        let groups = ids
            .each_ref()
            .map(|id| TestCgroup::create(&format!("docker-{id}.scope")));
        let streams = groups.each_ref().map(|it| it.stream(&inner));
        let mut log = [(); 3].map(|()| attach.next_line());
        log.sort();
        assert_eq!(
            log,
            [
                format!("pillion: attached to container {name}"),
                format!("pillion: attached to lo in container {name}"),
                format!("pillion: resolved: {unmatched}"),
            ]
        );
        eventually("the container is covered", || {
            host.status(&own)["active_connections"] == 1
        });
        assert_eq!(host.status(&own)["notes"], json!([]));
        let flows = host.json(&own, &["flows", "--json"]);
        let port = streams[0].1.local_addr().unwrap().to_string();
        let mut flows = flows.as_array().unwrap().iter();
        let flow = flows.find(|flow| flow["peer"] == port.as_str()).unwrap();
        assert_eq!(flow["unit"], format!("container {name}"));
        drop(groups);
        streams.into_iter().for_each(|(stream, _)| reap(stream));
        let log = [(); 2].map(|()| attach.next_line());
        assert!(
            log.contains(&format!("pillion: detached from container {name}")),
            "{log:?}"
        );
        assert!(
            log.contains(&format!("pillion: warning: {unmatched}")),
            "{log:?}"
        );
        attach.stop_without_stats();
    }
}

#[test]
fn reload_may_select_other_containers() {
    needs_root!();
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = EngineHost::new();
    let (id, name) = (id("c"), format!("late-{}", std::process::id()));
    host.add_docker_container(&id, &name);
    let group = TestCgroup::create(&format!("docker-{id}.scope"));
    let (stream, _listener) = group.stream(&inner);
    let rules = host.path().join("rules.toml");
    let write_rules = |container: &str| {
        let text = format!("[[rule]]\nthin = \"always\"\ncontainer = \"{container}\"\n");
        fs::write(&rules, text).unwrap();
    };
    write_rules("none");
    let arguments = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let command = host.pillion(&own, &arguments);
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    let log = attach.next_line();
    assert!(log.starts_with("pillion: bundling "), "{log}");
    attach.expect_line("warning: rule 1 covers nothing: no container named none");
    write_rules("late-*");
    kill(
        Pid::from_raw(attach.process.id().cast_signed()),
        Signal::SIGHUP,
    )
    .unwrap();
    let log = [(); 4].map(|()| attach.next_line()).join("\n");
    let expected = "now bundling only in pillion's own network namespace, containers named late-*";
    assert!(log.contains(expected), "{log}");
    assert!(log.contains("resolved: "), "{log}");
    eventually("the container is covered", || {
        host.status(&own)["active_connections"] == 1
    });
    drop(group);
    reap(stream);
    attach.stop_without_stats();
}

#[test]
fn container_combines_with_port_but_not_with_cgroup() {
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
    let log = "connections with port 80 of containers named web-*";
    assert!(stdout(&output).contains(log), "{output:?}");
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

#[test]
fn many_containers_of_one_rule_take_one_table_row() {
    needs_root!();
    const COUNT: usize = Policy::MAX_ROWS + 6;
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = EngineHost::new();
    let unique = std::process::id();
    let ids: Vec<_> = (0..=COUNT).map(|it| id(&format!("{it:x}d"))).collect();
    for (number, id) in ids.iter().enumerate() {
        host.add_docker_container(id, &format!("many-{unique}-{number}"));
    }
    let group = |id: &String| TestCgroup::create(&format!("docker-{id}.scope"));
    let mut groups: Vec<_> = ids[..COUNT].iter().map(group).collect();
    let pattern = format!("many-{unique}-*");
    let arguments = [
        "attach",
        "--dev",
        "lo",
        "--thin",
        "always",
        "--container",
        &pattern,
    ];
    let command = host.pillion(&own, &arguments);
    let mut attach = Attach::spawn(command, tempfile::tempdir().unwrap());
    let log = attach.next_line();
    assert!(log.starts_with("pillion: bundling "), "{log}");
    let wait_for_connections = |count: u64| host.status(&own)["active_connections"] == count;
    let (first, _listener) = groups[COUNT - 1].stream(&inner);
    eventually("the last container is covered", || wait_for_connections(1));
    groups.push(group(&ids[COUNT]));
    let (second, _listener) = groups[COUNT].stream(&inner);
    eventually("a new container is covered", || wait_for_connections(2));
    let restarted = groups.remove(0);
    drop(restarted);
    groups.push(group(&ids[0]));
    let (third, _listener) = groups[COUNT].stream(&inner);
    eventually("the restarted container is covered", || {
        wait_for_connections(3)
    });
    drop(groups);
    [first, second, third].into_iter().for_each(reap);
    attach.stop_without_stats();
}

#[test]
fn cgroup_capacity_is_shared_among_rules() {
    needs_root!();
    let rule = |name: &str| Rule {
        containers: ContainerSelector {
            names: vec![name.parse().unwrap()],
            labels: Vec::new(),
        },
        ..Rule::default()
    };
    let running = (1..=9000).map(|cgroup| Container {
        id: format!("{cgroup:064}"),
        info: pillion_bpf::host::ContainerInfo {
            names: vec![if cgroup < 9000 { "many" } else { "one" }.to_owned()],
            ..Default::default()
        },
        cgroup,
        process: None,
        is_hidden: false,
    });
    let policy = Policy {
        rules: vec![rule("many"), rule("one")],
        running: running.collect(),
        ..Policy::default()
    };
    Programs::load(&policy).unwrap();
    let [many, one] = policy.cgroups().unwrap().try_into().unwrap();
    let (many, one) = (many.unwrap(), one.unwrap());
    assert_eq!((many.named, many.covered.len()), (8999, 8191));
    assert_eq!((one.named, one.covered), (1, vec![9000]));
}
