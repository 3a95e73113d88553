//! The files of container runtimes: Docker's, those of containerd (Kubernetes, nerdctl), and the
//! storage of Podman and CRI-O.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pillion_stats::names::sanitized;
use serde::Deserialize;

/// Names and labels of a container from its runtime's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerInfo {
    /// The container's names; for a pod's container POD, NAMESPACE/POD and NAMESPACE/POD/CONTAINER.
    pub names: Vec<String>,
    /// Its labels and annotations.
    pub labels: BTreeMap<String, String>,
}

impl ContainerInfo {
    /// The most specific name, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.names.last().map(String::as_str)
    }
}

/// Reads the files, and each again only when it has changed.
#[derive(Debug)]
pub struct RuntimeFiles {
    root: PathBuf,
    read: HashMap<PathBuf, (Stamp, ContainerFacts)>,
    unreadable_path: Option<PathBuf>,
}

/// When a file was changed last, and its size.
type Stamp = (SystemTime, u64);

/// The content of one file: names by container id, and labels of its container.
#[derive(Debug, Clone, Default)]
struct ContainerFacts {
    names: HashMap<String, Vec<String>>,
    labels: BTreeMap<String, String>,
}

impl Default for RuntimeFiles {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

impl RuntimeFiles {
    /// Reads the files of the host whose root this is.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            read: HashMap::new(),
            unreadable_path: None,
        }
    }

    /// Returns the names and labels of these containers, in order of their ids; drops cached files
    /// of others.
    pub fn describe<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> Vec<ContainerInfo> {
        let previous = std::mem::take(&mut self.read);
        self.unreadable_path = None;
        let folders = self.folders();
        let unreadable_folder = self.unreadable_path.take();
        let infos = ids.map(|id| self.describe_one(id, &folders, &previous));
        let infos: Vec<_> = infos.collect();
        // The folders of runtimes without running containers are not missed.
        if infos.iter().any(|it| it.names.is_empty()) {
            self.unreadable_path = self.unreadable_path.take().or(unreadable_folder);
        }
        infos
    }

    /// A file or folder that is not readable, so that names or labels may be missing.
    #[must_use]
    pub fn unreadable_path(&self) -> Option<&Path> {
        self.unreadable_path.as_deref()
    }

    fn describe_one(
        &mut self,
        id: &str,
        folders: &[Folder],
        previous: &HashMap<PathBuf, (Stamp, ContainerFacts)>,
    ) -> ContainerInfo {
        let mut all = ContainerInfo::default();
        for folder in folders {
            for (path, parse) in folder.files(id) {
                if let Some(facts) = self.facts(path, id, parse, previous) {
                    if all.names.is_empty() {
                        all.names = facts.names.get(id).cloned().unwrap_or_default();
                    }
                    let labels = facts.labels.iter();
                    all.labels
                        .extend(labels.map(|(key, value)| (key.clone(), value.clone())));
                }
            }
        }
        all
    }

    fn facts(
        &mut self,
        path: PathBuf,
        id: &str,
        parse: Parse,
        previous: &HashMap<PathBuf, (Stamp, ContainerFacts)>,
    ) -> Option<&ContainerFacts> {
        let stamp = self.note_unreadable(&path, fs::metadata(&path))?;
        let stamp = (stamp.modified().ok()?, stamp.len());
        let is_same = |read: &&(Stamp, ContainerFacts)| read.0 == stamp;
        if !self.read.get(&path).is_some_and(|it| is_same(&it)) {
            let read = match previous.get(&path).filter(is_same) {
                Some(known) => known.clone(),
                None => {
                    let text = self.note_unreadable(&path, fs::read(&path))?;
                    // A file that is being written is read again after its next change.
                    (stamp, parse(id, &text).unwrap_or_default())
                }
            };
            self.read.insert(path.clone(), read);
        }
        self.read.get(&path).map(|(_, facts)| facts)
    }

    fn note_unreadable<T>(&mut self, path: &Path, result: io::Result<T>) -> Option<T> {
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if result.as_ref().err().is_some_and(is_denied) {
            self.unreadable_path = Some(path.to_owned());
        }
        result.ok()
    }

    /// The folders of the installed runtimes with files about containers.
    fn folders(&mut self) -> Vec<Folder> {
        // An old folder may remain after a move.
        let docker = [
            self.docker_data_root(),
            Some(self.root.join("var/lib/docker")),
        ];
        let docker = docker.into_iter().flatten();
        let mut all: Vec<_> = docker.flat_map(|it| self.docker_folders(&it)).collect();
        // A driver of storage has a folder of its own, as in `overlay-containers`.
        let storage = self.entries(&self.root.join("var/lib/containers/storage"));
        let is_of_containers = |path: &PathBuf| path.to_string_lossy().ends_with("-containers");
        all.extend(storage.filter(is_of_containers).map(Folder::Storage));
        for state in ["run/containerd", "run/k3s/containerd"] {
            let tasks = self.root.join(state).join("io.containerd.runtime.v2.task");
            // Its own namespaces are `moby`, `k8s.io` and so on.
            all.extend(self.entries(&tasks).map(Folder::Tasks));
        }
        all
    }

    /// Docker's data folder, if its configuration sets one.
    fn docker_data_root(&mut self) -> Option<PathBuf> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Daemon {
            data_root: Option<PathBuf>,
        }
        let path = self.root.join("etc/docker/daemon.json");
        let file = self.note_unreadable(&path, fs::read(&path))?;
        let path = serde_json::from_slice::<Daemon>(&file).ok()?.data_root?;
        Some(self.root.join(path.strip_prefix("/").ok()?))
    }

    /// Docker's container folders. With mapped users (`userns-remap`) they are in a subfolder named
    /// after user and group, as in `231072.231072`.
    fn docker_folders(&mut self, data_root: &Path) -> Vec<Folder> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        let is_remapped = |path: &PathBuf| {
            let name = path.file_name().and_then(|it| it.to_str());
            let parts = name.and_then(|it| it.split_once('.'));
            parts.is_some_and(|(user, group)| is_number(user) && is_number(group))
        };
        let remapped = self.entries(data_root).filter(is_remapped);
        let roots = [data_root.to_owned()].into_iter().chain(remapped);
        roots
            .map(|it| Folder::Docker(it.join("containers")))
            .collect()
    }

    fn entries(&mut self, folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = self.note_unreadable(folder, fs::read_dir(folder));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    }
}

/// A folder of a runtime with files about containers.
enum Folder {
    Docker(PathBuf),
    Storage(PathBuf),
    Tasks(PathBuf),
}

/// Parses a file for the container with an id.
type Parse = fn(&str, &[u8]) -> serde_json::Result<ContainerFacts>;

impl Folder {
    /// The files that may describe a container; the most reliable source of a name first.
    fn files(&self, id: &str) -> Vec<(PathBuf, Parse)> {
        match self {
            Self::Docker(folder) => vec![(folder.join(id).join("config.v2.json"), docker)],
            Self::Storage(folder) => vec![
                (folder.join("containers.json"), storage),
                (folder.join(id).join("userdata/config.json"), bundle),
            ],
            Self::Tasks(folder) => vec![(folder.join(id).join("config.json"), bundle)],
        }
    }
}

/// Docker's `config.v2.json`.
fn docker(id: &str, text: &[u8]) -> serde_json::Result<ContainerFacts> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct File {
        name: String,
        config: Config,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        labels: Option<BTreeMap<String, String>>,
    }
    let file: File = serde_json::from_slice(text)?;
    let name = file.name.trim_start_matches('/');
    Ok(ContainerFacts {
        names: [(id.to_owned(), names_from(name))].into(),
        labels: file.config.labels.unwrap_or_default(),
    })
}

/// `containers.json` of the storage, which is of all containers.
fn storage(_: &str, text: &[u8]) -> serde_json::Result<ContainerFacts> {
    #[derive(Deserialize)]
    struct Stored {
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    let all: Vec<Stored> = serde_json::from_slice(text)?;
    let names = all.into_iter().filter_map(|it| {
        let name = names_from(it.names.first()?);
        Some((it.id, name))
    });
    Ok(ContainerFacts {
        names: names.collect(),
        labels: BTreeMap::new(),
    })
}

/// `config.json` of an OCI bundle, by its annotations.
fn bundle(id: &str, text: &[u8]) -> serde_json::Result<ContainerFacts> {
    #[derive(Deserialize)]
    struct Bundle {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    /// The namespace, the pod and the container, as containerd writes them and as CRI-O does.
    const PODS: [[&str; 3]; 2] = [
        [
            "io.kubernetes.cri.sandbox-namespace",
            "io.kubernetes.cri.sandbox-name",
            "io.kubernetes.cri.container-name",
        ],
        [
            "io.kubernetes.pod.namespace",
            "io.kubernetes.pod.name",
            "io.kubernetes.container.name",
        ],
    ];
    let labels = serde_json::from_slice::<Bundle>(text)?.annotations;
    let pod = PODS.iter().find_map(|keys| {
        let [namespace, pod, container] = keys.map(|key| labels.get(key));
        Some(names_in(namespace?, pod?, container.map(String::as_str)))
    });
    let own = || labels.get("nerdctl/name").map(|name| names_from(name));
    let names = pod.or_else(own);
    Ok(ContainerFacts {
        names: names.map(|it| (id.to_owned(), it)).into_iter().collect(),
        labels,
    })
}

/// The names of a container by its runtime's name. For Kubernetes that name is
/// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
fn names_from(name: &str) -> Vec<String> {
    let parts: Vec<_> = name.split('_').collect();
    match parts[..] {
        ["k8s", container, pod, namespace, _, _] => {
            // The container that holds the pod's namespaces.
            let container = Some(container).filter(|it| *it != "POD");
            names_in(namespace, pod, container)
        }
        _ => vec![sanitized(name)],
    }
}

fn names_in(namespace: &str, pod: &str, container: Option<&str>) -> Vec<String> {
    let (namespace, pod) = (sanitized(namespace), sanitized(pod));
    let in_namespace = format!("{namespace}/{pod}");
    let container = container.map(|it| format!("{in_namespace}/{}", sanitized(it)));
    [pod, in_namespace].into_iter().chain(container).collect()
}

#[cfg(test)]
mod tests;
