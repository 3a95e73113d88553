//! Running containers, found by their cgroups, which every runtime names after the container's id,
//! and described by the runtime's files.

mod runtime_files;
mod selector;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::host::cgroup_owner::{SHORT_ID_DIGITS, cgroup_path, children, container_id};

pub use runtime_files::{ContainerInfo, RuntimeFiles};
pub use selector::{
    ContainerLabel, ContainerLabelError, ContainerName, ContainerNameError, ContainerSelector,
};

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Names and labels from its runtime's files.
    pub info: ContainerInfo,
    /// The kernel's id of its cgroup (v2).
    pub cgroup: u64,
    /// The PID of a process in it; `None` if no process is visible from this PID namespace, as
    /// during start and stop.
    pub process: Option<u32>,
    /// Whether it has processes that cannot be seen from this PID namespace, and no others.
    pub is_hidden: bool,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.info.name().unwrap_or(&self.id[..SHORT_ID_DIGITS]))
    }
}

/// Finds the containers that run, time and again.
#[derive(Debug, Default)]
pub struct Containers {
    files: RuntimeFiles,
    running: Vec<Container>,
    cgroup1_only: Vec<Container>,
}

impl Containers {
    /// Finds containers with cgroups below `mount` (cgroup v2), and those that only have one below
    /// `version_1` (cgroup v1).
    pub fn refresh(&mut self, mount: &Path, version_1: Option<&Path>) -> &[Container] {
        let mut folders = container_folders(mount);
        let there = folders.len();
        folders.extend(version_1.map_or_else(Vec::new, |it| cgroup1_only_folders(it, &folders)));
        let info = self.files.describe(folders.iter().map(|it| it.id.as_str()));
        let folders = folders.into_iter().zip(info);
        let all = folders.map(|(it, info)| {
            let process = self.process(&it);
            Container {
                process,
                is_hidden: process.is_none() && is_hidden(&it.path),
                id: it.id,
                info,
                cgroup: it.cgroup,
            }
        });
        let mut all: Vec<_> = all.collect();
        self.cgroup1_only = all.split_off(there);
        self.running = all;
        &self.running
    }

    /// Containers with cgroups of version 1 only, as of the last refresh: programs at cgroups of
    /// version 2 cannot identify their sockets.
    #[must_use]
    pub fn cgroup1_only(&self) -> &[Container] {
        &self.cgroup1_only
    }

    /// The containers of the last refresh.
    #[must_use]
    pub fn running(&self) -> &[Container] {
        &self.running
    }

    /// The warning that names or labels may be missing, if a runtime's files are not readable.
    #[must_use]
    pub fn unreadable_warning(&self) -> Option<String> {
        let path = self.unreadable_path()?.display();
        Some(format!(
            "{path} is not readable: container names require root or CAP_DAC_READ_SEARCH"
        ))
    }

    /// A file or folder of a runtime that is not readable, if any.
    #[must_use]
    pub fn unreadable_path(&self) -> Option<&Path> {
        self.files.unreadable_path()
    }

    /// A process of the container: the one of the last refresh, while it exists.
    fn process(&self, at: &Folder) -> Option<u32> {
        let before = self.running.iter().find(|it| it.cgroup == at.cgroup);
        let is_there = |process: &u32| {
            let path = cgroup_path(Path::new(&format!("/proc/{process}")));
            // The start of the path depends on this process's cgroup namespace.
            path.is_some_and(|path| path.iter().any(|part| Some(part) == at.path.file_name()))
        };
        let before = before.and_then(|it| it.process).filter(is_there);
        before.or_else(|| first_process(&at.path))
    }
}

/// The cgroup of a container.
struct Folder {
    path: PathBuf,
    id: String,
    cgroup: u64,
}

/// The cgroups named after containers. Cgroups in folders of other users are excluded: a user with
/// a delegated cgroup, as in each systemd user session, could name one after any container.
fn container_folders(mount: &Path) -> Vec<Folder> {
    let mut found = Vec::new();
    let mut folders = vec![mount.to_owned()];
    while let Some(folder) = folders.pop() {
        if !is_trusted(&folder) {
            continue;
        }
        for (path, cgroup) in children(&folder) {
            let id = path.file_name().and_then(|it| container_id(it.to_str()?));
            if let Some(id) = id.map(str::to_owned) {
                found.push(Folder {
                    path: path.clone(),
                    id,
                    cgroup,
                });
            }
            folders.push(path);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The cgroups of this v1 hierarchy that are named after other containers. Empty ones are skipped,
/// because they may be left over.
fn cgroup1_only_folders(hierarchy: &Path, except: &[Folder]) -> Vec<Folder> {
    let known: HashSet<_> = except.iter().map(|it| it.id.as_str()).collect();
    let mut found = container_folders(hierarchy);
    found.retain(|it| !known.contains(it.id.as_str()) && first_process(&it.path).is_some());
    found
}

/// True if only root, or this process's user, can create cgroups in this one.
fn is_trusted(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|it| [0, Uid::effective().as_raw()].contains(&it.uid()))
}

/// The process of a cgroup with the lowest id; otherwise one of a child that is not a container's
/// cgroup.
fn first_process(folder: &Path) -> Option<u32> {
    let first = processes(folder).into_iter().filter(|id| *id != 0).min();
    first.or_else(|| child_folders(folder).find_map(|path| first_process(&path)))
}

/// True if a cgroup, or a child that is not a container's, has a process that is not visible from
/// here.
fn is_hidden(folder: &Path) -> bool {
    processes(folder).contains(&0) || child_folders(folder).any(|path| is_hidden(&path))
}

/// The processes of a cgroup; invisible ones are 0.
fn processes(folder: &Path) -> Vec<u32> {
    let ids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    ids.lines().filter_map(|it| it.parse().ok()).collect()
}

/// The children of a cgroup that are not containers' cgroups.
fn child_folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_containers = |path: &PathBuf| {
        let name = path.file_name().and_then(|it| it.to_str());
        name.is_some_and(|it| container_id(it).is_some())
    };
    let folders = children(folder).map(|(path, _)| path);
    folders.filter(move |path| !is_containers(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn containers_are_found_by_cgroup() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        let id = |digit: &str| digit.repeat(64);
        let (a, b, c, d) = (id("a"), id("b"), id("c"), id("d"));
        let make = |path: &str, processes: &str| {
            fs::create_dir_all(mount.join(path)).unwrap();
            fs::write(mount.join(path).join("cgroup.procs"), processes).unwrap();
        };
        make(&format!("system.slice/docker-{a}.scope"), "70\n7\n");
        make(&format!("machine.slice/libpod-conmon-{b}.scope"), "8\n");
        make(&format!("machine.slice/libpod-{b}.scope"), "");
        make(&format!("machine.slice/libpod-{b}.scope/container"), "9\n");
        make(&format!("machine.slice/libpod-{b}.scope/{c}"), "0\n");
        make(&format!("system.slice/docker-{d}.scope"), "");
        let mut containers = Containers::default();
        let found = containers.refresh(mount, None).iter();
        let found: Vec<_> = found
            .map(|it| (it.id.clone(), it.process, it.is_hidden))
            .collect();
        let expected = [
            (b, Some(9), false),
            (c, None, true),
            (a.clone(), Some(7), false),
            // As at its beginning and its end.
            (d, None, false),
        ];
        assert_eq!(found, expected);
        let folder = mount.join(format!("system.slice/docker-{a}.scope"));
        let last = &containers.running()[2];
        assert_eq!(last.cgroup, fs::metadata(&folder).unwrap().ino());
        assert_eq!(last.to_string(), "aaaaaaaaaaaa");
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(containers.refresh(mount, None).len(), 3);
    }

    #[test]
    fn cgroup1_only_containers_are_listed_separately() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let [a, b, c] = ["a", "b", "c"].map(|digit| digit.repeat(64));
        for (path, processes) in [
            (format!("unified/docker/{a}"), "7\n"),
            (format!("systemd/docker/{a}"), "7\n"),
            (format!("systemd/docker/{b}"), "8\n"),
            (format!("systemd/docker/{c}"), ""),
        ] {
            fs::create_dir_all(at(&path)).unwrap();
            fs::write(at(&path).join("cgroup.procs"), processes).unwrap();
        }
        let mut containers = Containers::default();
        let version_1 = at("systemd");
        let ids =
            |found: &[Container]| -> Vec<_> { found.iter().map(|it| it.id.clone()).collect() };
        assert_eq!(
            ids(containers.refresh(&at("unified"), Some(&version_1))),
            [a]
        );
        assert_eq!(ids(containers.cgroup1_only()), [b]);
        containers.refresh(&at("unified"), None);
        assert!(containers.cgroup1_only().is_empty());
    }

    #[test]
    fn cgroup_of_unprivileged_user_is_not_a_container() {
        if !Uid::effective().is_root() {
            println!("left out without root");
            return;
        }
        let mount = tempfile::tempdir().unwrap();
        let at = |path: &str| mount.path().join(path);
        let [web, other] = ["a", "b"].map(|digit| format!("docker-{}.scope", digit.repeat(64)));
        let user = format!("user.slice/user-1000.slice/{web}");
        let remapped = format!("system.slice/{other}");
        for path in [&user, &remapped, &format!("{remapped}/{web}")] {
            fs::create_dir_all(at(path)).unwrap();
        }
        // A container with a user namespace of its own has its cgroup.
        for path in [
            "user.slice/user-1000.slice",
            &user,
            &remapped,
            &format!("{remapped}/{web}"),
        ] {
            chown(at(path), Some(1000), Some(1000)).unwrap();
        }
        let mut containers = Containers::default();
        let found = containers.refresh(mount.path(), None).iter();
        let found: Vec<_> = found.map(|it| it.id.clone()).collect();
        assert_eq!(found, ["b".repeat(64)]);
    }
}
