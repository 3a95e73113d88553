use std::os::unix::fs::PermissionsExt;
use std::thread;

use nix::unistd::{Uid, setfsuid};
use serde_json::{Value, json};

use super::*;

/// A host with runtimes' files.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(root)
    }

    fn write(&self, path: &str, value: &Value) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    }

    fn files(&self) -> RuntimeFiles {
        RuntimeFiles::below(self.0.path())
    }
}

fn one(files: &mut RuntimeFiles, id: &str) -> ContainerInfo {
    files.describe([id].into_iter()).remove(0)
}

#[test]
fn docker_files_give_name_and_labels() {
    let host = Host::new();
    let web = json!({
        "ID": "1", "Name": "/web",
        "Config": {"Hostname": "x", "Labels": {"app": "game"}},
    });
    host.write("var/lib/docker/containers/1/config.v2.json", &web);
    // Docker's containers have no name in containerd's files.
    let task = json!({"ociVersion": "1.0", "process": {"args": ["sh"]}});
    let tasks = "run/containerd/io.containerd.runtime.v2.task";
    host.write(&format!("{tasks}/moby/1/config.json"), &task);
    let found = one(&mut host.files(), "1");
    assert_eq!(found.names, ["web"]);
    assert_eq!(found.labels, [("app".to_owned(), "game".to_owned())].into());
    let pod = json!({"Name": "/k8s_server_game-7d_prod_1f2e_0", "Config": {"Labels": null}});
    host.write("var/lib/docker/containers/2/config.v2.json", &pod);
    assert_eq!(
        one(&mut host.files(), "2").name(),
        Some("prod/game-7d/server")
    );
}

#[test]
fn docker_files_are_found_with_userns_remap_and_data_root() {
    let host = Host::new();
    let named = |name: &str| json!({"Name": name, "Config": {}});
    let data = "var/lib/docker";
    for (path, name) in [
        (format!("{data}/231072.231072/containers/1"), "/mapped"),
        (format!("{data}/tmp.d/containers/2"), "/none"),
        (format!("{data}/containers/3"), "/left-behind"),
        ("srv/docker/containers/3".to_owned(), "/moved"),
        ("srv/docker/5.5/containers/4".to_owned(), "/both"),
    ] {
        host.write(&format!("{path}/config.v2.json"), &named(name));
    }
    let names = |ids: &[&str]| -> Vec<_> {
        let infos = host.files().describe(ids.iter().copied()).into_iter();
        infos.map(|it| it.names.join(" ")).collect()
    };
    assert_eq!(
        names(&["1", "2", "3", "4"]),
        ["mapped", "", "left-behind", ""]
    );
    let daemon = json!({"data-root": "/srv/docker", "log-driver": "journald"});
    host.write("etc/docker/daemon.json", &daemon);
    assert_eq!(names(&["1", "3", "4"]), ["mapped", "moved", "both"]);
}

#[test]
fn podman_files_give_name_and_annotations() {
    let host = Host::new();
    let folder = "var/lib/containers/storage/overlay-containers";
    let all = json!([{"id": "1", "names": ["we\u{1b}b"], "layer": "x"}, {"id": "2"}]);
    host.write(&format!("{folder}/containers.json"), &all);
    let bundle = json!({"annotations": {"team": "red", "io.container.manager": "libpod"}});
    host.write(&format!("{folder}/1/userdata/config.json"), &bundle);
    let mut files = host.files();
    let found = one(&mut files, "1");
    assert_eq!(found.names, ["we?b"]);
    assert_eq!(found.labels["team"], "red");
    for unknown in ["2", "3"] {
        assert_eq!(one(&mut files, unknown), ContainerInfo::default());
    }
}

#[test]
fn pods_are_named_by_containerd_and_crio_files() {
    let host = Host::new();
    let names = ["game-7d", "prod/game-7d", "prod/game-7d/server"];
    let containerd = json!({"annotations": {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.sandbox-name": "game-7d",
        "io.kubernetes.cri.sandbox-namespace": "prod",
        "io.kubernetes.cri.container-name": "server",
    }});
    let sandbox = json!({"annotations": {
        "io.kubernetes.cri.sandbox-name": "game-7d",
        "io.kubernetes.cri.sandbox-namespace": "prod",
    }});
    let own = json!({"annotations": {"nerdctl/name": "web", "nerdctl/namespace": "default"}});
    let crio = json!([{"id": "5", "names": ["k8s_POD_game-7d_prod_1f2e_0"]}]);
    let of_crio = json!({"annotations": {
        "io.kubernetes.pod.name": "game-7d",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.container.name": "server",
    }});
    let tasks = "io.containerd.runtime.v2.task";
    let storage = "var/lib/containers/storage/overlay-containers";
    host.write(
        &format!("run/containerd/{tasks}/k8s.io/1/config.json"),
        &containerd,
    );
    host.write(
        &format!("run/k3s/containerd/{tasks}/k8s.io/2/config.json"),
        &containerd,
    );
    host.write(
        &format!("run/containerd/{tasks}/k8s.io/3/config.json"),
        &sandbox,
    );
    host.write(
        &format!("run/containerd/{tasks}/default/4/config.json"),
        &own,
    );
    host.write(&format!("{storage}/containers.json"), &crio);
    host.write(&format!("{storage}/6/userdata/config.json"), &of_crio);
    let mut files = host.files();
    let found = files.describe(["1", "2", "3", "4", "5", "6"].into_iter());
    let found: Vec<_> = found.into_iter().map(|it| it.names).collect();
    let pod = &names[..2];
    assert_eq!(found, [&names[..], &names, pod, &["web"], pod, &names]);
}

#[test]
fn changed_runtime_file_is_read_again() {
    let host = Host::new();
    let path = "var/lib/docker/containers/1/config.v2.json";
    let named = |name: &str| json!({"Name": name, "Config": {}});
    host.write(path, &named("/a"));
    let mut files = host.files();
    assert_eq!(one(&mut files, "1").names, ["a"]);
    assert_eq!(one(&mut files, "1").names, ["a"]);
    assert_eq!(files.read.len(), 1);
    host.write(path, &named("/renamed"));
    assert_eq!(one(&mut files, "1").names, ["renamed"]);
    host.write(path, &json!("half"));
    assert_eq!(one(&mut files, "1"), ContainerInfo::default());
    files.describe([].into_iter());
    assert!(files.read.is_empty());
}

/// Describes container 1 while `path` has the mode 000, by a user without rights to it.
fn unreadable_path(host: &Host, path: &str) -> Option<PathBuf> {
    let mut files = host.files();
    one(&mut files, "1");
    assert_eq!(files.unreadable_path(), None);
    let path = host.0.path().join(path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let as_another = || {
        // Only for this thread; root then has no more rights than others.
        setfsuid(Uid::from_raw(65_534));
        one(&mut files, "1");
    };
    thread::scope(|scope| scope.spawn(as_another).join()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let unreadable = files.unreadable_path()?.strip_prefix(host.0.path());
    Some(unreadable.unwrap().to_owned())
}

/// Each folder hides the files of its runtime.
#[test]
fn unreadable_runtime_file_or_folder_is_reported() {
    let host = Host::new();
    let config = "var/lib/docker/containers/1/config.v2.json";
    host.write(config, &json!({}));
    let found = unreadable_path(&host, "var/lib/docker/containers");
    assert_eq!(found.as_deref(), Some(Path::new(config)));
    for (file, folder) in [
        (
            "var/lib/containers/storage/overlay-containers/containers.json",
            "var/lib/containers/storage",
        ),
        (
            "run/containerd/io.containerd.runtime.v2.task/k8s.io/1/config.json",
            "run/containerd/io.containerd.runtime.v2.task",
        ),
        ("etc/docker/daemon.json", "etc/docker/daemon.json"),
    ] {
        let host = Host::new();
        host.write(file, &json!({}));
        let found = unreadable_path(&host, folder);
        assert_eq!(found.as_deref(), Some(Path::new(folder)));
    }
}

#[test]
fn unreadable_folder_is_not_reported_if_names_are_known() {
    let host = Host::new();
    let docker = "var/lib/docker/containers/1/config.v2.json";
    host.write(docker, &json!({"Name": "/web", "Config": {}}));
    let storage = "var/lib/containers/storage";
    fs::create_dir_all(host.0.path().join(storage)).unwrap();
    assert_eq!(unreadable_path(&host, storage), None);
}
