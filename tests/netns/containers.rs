//! Containers by name and label: with files as runtimes write them, and with Podman's own where it
//! is there.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bundler::cgroup2_mount;
use pillion_lab::Namespace;
use pillion_tests::HostPair;
use serde_json::{Value, json};

use crate::coming::Group;
use crate::common::*;
use crate::devices::Attach;
use crate::namespaces::Resident;

/// A host's folder `/var/lib` of its own, as the commands see that are run beside it.
pub struct Beside(tempfile::TempDir);

impl Beside {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A command that sees it, and cgroups at their usual place, for Podman looks nowhere else.
    pub fn command(&self, namespace: &Namespace, words: &[&str]) -> Command {
        const SCRIPT: &str = "mount --bind \"$1\" /var/lib && shift && \
            { [ -e /sys/fs/cgroup/cgroup.controllers ] || \
            { umount -l -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }; } && exec \"$@\"";
        let mut shell = namespace.command("unshare");
        shell.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
        shell.arg(self.path()).args(words);
        hears_all_signals(&mut shell);
        shell
    }

    pub fn pillion(&self, namespace: &Namespace, arguments: &[&str]) -> Command {
        self.command(namespace, &[&[PILLION], arguments].concat())
    }

    pub fn json(&self, namespace: &Namespace, arguments: &[&str]) -> Value {
        let output = self.pillion(namespace, arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What Docker writes of a container.
    pub fn has_of_docker(&self, id: &str, name: &str) {
        let folder = self.path().join("docker/containers").join(id);
        fs::create_dir_all(&folder).unwrap();
        let config = json!({"Name": format!("/{name}"), "Config": {"Labels": {"app": name}}});
        fs::write(folder.join("config.v2.json"), config.to_string()).unwrap();
    }

    /// What a pillion of this namespace says of itself.
    pub fn status(&self, namespace: &Namespace) -> Value {
        self.json(namespace, &["status", "--json"])[0].clone()
    }
}

/// Ends it, and what it has begun.
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
        assert!(attach.said().starts_with("pillion: bundling "));
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
                format!("pillion: covers something again; before, {idle}"),
                format!("pillion: lo in container {name} {come}"),
            ]
        );
        eventually("that container is covered", || {
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
    assert!(attach.said().starts_with("pillion: bundling "));
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
    assert!(said.contains("covers something again"), "{said}");
    eventually("that container is covered", || {
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

/// Podman, with containers of its own.
struct Podman {
    host: Beside,
    here: Namespace,
    runtime: &'static str,
}

impl Podman {
    /// None, with a line that says so, where it cannot run containers.
    fn find() -> Option<Self> {
        let mut why = String::new();
        for runtime in ["crun", "runc"] {
            let podman = Self {
                host: Beside::new(),
                here: namespace_with_loopback(),
                runtime,
            };
            match podman.run("probe", &["--network=none"], &["/bin/true"]) {
                Ok(output) if output.status.success() => return Some(podman),
                Ok(output) => why = stderr(&output),
                Err(error) => why = error.to_string(),
            }
        }
        let why = why.lines().last().unwrap_or_default();
        println!("left out, for Podman runs no container here: {why}");
        None
    }

    fn command(&self, words: &[&str]) -> Command {
        let at = |folder: &str| self.host.path().join(folder).to_str().unwrap().to_owned();
        let (state, temporary) = (at("state"), at("temporary"));
        let options = ["--cgroup-manager", "cgroupfs", "--runtime", self.runtime];
        let folders = ["--runroot", &state, "--tmpdir", &temporary];
        let podman = [&["podman"], &options[..], &folders, words].concat();
        self.host.command(&self.here, &podman)
    }

    /// Runs a container of this host's programs, with other options of `podman run`.
    fn run(&self, name: &str, options: &[&str], words: &[&str]) -> io::Result<Output> {
        let root = self.host.path().join("root");
        for folder in [
            "bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "var",
        ] {
            fs::create_dir_all(root.join(folder))?;
        }
        let root = root.to_str().unwrap();
        let program = format!("{PILLION}:/pillion:ro");
        let folders = ["/usr", "/bin", "/lib", "/lib64"];
        let folders = folders.map(|it| format!("{it}:{it}:ro"));
        let volumes = folders.iter().chain([&program]);
        let volumes: Vec<_> = volumes.flat_map(|it| ["--volume", it]).collect();
        // Not those of the runtime: they may be more than this process may have.
        let limits = [
            "--ulimit=nofile=1024",
            "--ulimit=nproc=1024",
            "--pids-limit=-1",
        ];
        let how = ["run", "--detach", "--name", name];
        let words = [
            &how[..],
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

fn remove_empty(cgroup: &PathBuf) {
    let inner = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for folder in inner.filter(|it| it.path().is_dir()) {
        let _ = fs::remove_dir(folder.path());
    }
    let _ = fs::remove_dir(cgroup);
}

/// A stream of thin traffic from a container, over a path that loses some of it.
struct Stream {
    pair: HostPair,
    resident: Resident,
    _listener: TcpListener,
}

impl Stream {
    fn prepare() -> Self {
        let pair = lossy_pair(0.05);
        let receiver = &pair.receiver.namespace;
        let listener = receiver.enter(|| TcpListener::bind("10.77.0.2:7777"));
        Self {
            resident: Resident::of(&pair.sender.namespace),
            _listener: listener.unwrap().unwrap(),
            pair,
        }
    }

    fn begin(&self, podman: &Podman, container: &str) {
        let network = network(&self.resident);
        let options = ["--annotation=team=red", "--network", &network];
        let send = ["/pillion", "traffic", "send", "--to", "10.77.0.2:7777"];
        let send = [&send[..], &["--itt", "10", "--duration", "60"]].concat();
        let output = podman.run(container, &options, &send).unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

impl Stream {
    /// What pillion shows of it; other pillions of this host may be at work.
    fn flow(&self, podman: &Podman) -> Value {
        let namespace = format!("/proc/{}/ns/net", self.resident.pid());
        let namespace = fs::metadata(namespace).unwrap().ino();
        let flows = podman.host.json(&podman.here, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().iter();
        let flow = flows.find(|flow| flow["netns"] == namespace);
        flow.cloned().unwrap_or_default()
    }
}

/// Bundles, not what they repaired: where a slow machine makes bundles large, the receiver delays its
/// ACKs, and these tell of few losses.
fn has_bundled(flow: &Value) -> bool {
    flow["outcomes"]["bundled"].as_u64() > Some(20)
}

/// What Podman is told of the network namespace of a process.
fn network(resident: &Resident) -> String {
    format!("ns:/proc/{}/ns/net", resident.pid())
}

#[test]
fn podmans_containers_are_followed_by_name_and_annotation() {
    needs_root!();
    let Some(podman) = Podman::find() else {
        return;
    };
    let stream = Stream::prepare();
    let own = &podman.here;
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
    let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
    assert!(attach.said().starts_with("pillion: bundling "));
    let idle = "rule 1: no container is called web-* and labelled team=r?d";
    attach.says(&format!("covers nothing: {idle}"));
    stream.begin(&podman, "web-1");
    let said = [(); 3].map(|()| attach.said());
    let come = "pillion: container web-1 has come: bundling there, too";
    assert!(said.contains(&come.to_owned()), "{said:?}");
    let flow = || stream.flow(&podman);
    eventually("it bundles there", || has_bundled(&flow()));
    assert_eq!(flow()["unit"], "container web-1");
    assert_eq!(flow()["process"], "pillion");
    let output = podman
        .command(&["rm", "--force", "--time", "0", "web-1"])
        .output();
    assert!(output.unwrap().status.success());
    let said = [(); 2].map(|()| attach.said());
    let gone = "pillion: container web-1 has gone";
    assert!(said.contains(&gone.to_owned()), "{said:?}");
    attach.interrupt();
}

/// What Podman is told so that a container has what the DaemonSet's has.
fn as_the_daemonset() -> Vec<String> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/kubernetes/daemonset.yaml"
    );
    let file = fs::read_to_string(file).unwrap();
    let within = |key: &str, ends: [char; 2]| {
        let after = file.split_once(key).unwrap().1.trim_start();
        let value = after.strip_prefix(ends[0]).unwrap();
        value.split_once(ends[1]).unwrap().0.to_owned()
    };
    let capabilities = within("add:", ['[', ']']).replace(' ', "");
    let mut options = vec![
        "--cap-drop=all".to_owned(),
        format!("--cap-add={capabilities}"),
    ];
    for (said, option) in [
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
        assert!(file.contains(said), "{said}");
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
fn in_a_container_with_the_daemonsets_rights_others_are_covered() {
    needs_root!();
    let Some(podman) = Podman::find() else {
        return;
    };
    let stream = Stream::prepare();
    let rights = as_the_daemonset();
    // The runtime's files are Podman's here.
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
    eventually("it is at work", || {
        log().contains("no container is called game-*")
    });
    stream.begin(&podman, "game-1");
    let flow = || stream.flow(&podman);
    let limit = Duration::from_secs(20);
    within(limit, "it bundles there", || has_bundled(&flow()));
    assert!(log().contains("container game-1 has come"), "{}", log());
    assert!(
        !log().contains("only sockets of this container"),
        "{}",
        log()
    );
    drop(stream.pair);
}
