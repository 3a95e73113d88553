//! Containers that run: by their cgroups, which every runtime names after the container's id, and by
//! what the runtime's own files say of that id.

mod choice;
mod runtime_files;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::host::unit::{SHOWN, below, cgroup_path, container_id};

pub use choice::{
    ContainerChoice, ContainerLabel, ContainerLabelError, ContainerName, ContainerNameError,
};
pub use runtime_files::{Described, RuntimeFiles};

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// What its runtime's files say of it.
    pub described: Described,
    /// The kernel's id of its cgroup (v2).
    pub cgroup: u64,
    /// A process in it, by its id here; `None` if none can be seen from this PID namespace, or there
    /// is none, as at its beginning and its end.
    pub process: Option<u32>,
    /// Whether it has processes that cannot be seen from this PID namespace, and no others.
    pub is_hidden: bool,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.described.name().unwrap_or(&self.id[..SHOWN]))
    }
}

/// Finds the containers that run, time and again.
#[derive(Debug, Default)]
pub struct Containers {
    files: RuntimeFiles,
    running: Vec<Container>,
    in_version_1: Vec<Container>,
}

impl Containers {
    /// Looks for those with cgroups below this folder of the cgroup v2 file system, and for those that
    /// have one below this of cgroup v1 alone, where that is mounted as well.
    pub fn look(&mut self, mount: &Path, version_1: Option<&Path>) -> &[Container] {
        let mut folders = folders_of_containers(mount);
        let there = folders.len();
        folders.extend(version_1.map_or_else(Vec::new, |it| left_in(it, &folders)));
        let described = self.files.describe(folders.iter().map(|it| it.id.as_str()));
        let folders = folders.into_iter().zip(described);
        let all = folders.map(|(it, described)| {
            let process = self.process(&it);
            Container {
                process,
                is_hidden: process.is_none() && is_hidden(&it.path),
                id: it.id,
                described,
                cgroup: it.cgroup,
            }
        });
        let mut all: Vec<_> = all.collect();
        self.in_version_1 = all.split_off(there);
        self.running = all;
        &self.running
    }

    /// Those that run, as of the last look, and have cgroups of version 1 alone: what is attached to
    /// cgroups of version 2 cannot tell their sockets from others.
    #[must_use]
    pub fn in_version_1(&self) -> &[Container] {
        &self.in_version_1
    }

    /// Those that were found at the last look.
    #[must_use]
    pub fn running(&self) -> &[Container] {
        &self.running
    }

    /// What of the runtimes' files may not be read, if there is any.
    #[must_use]
    pub fn forbidden(&self) -> Option<&Path> {
        self.files.forbidden()
    }

    /// The same process as at the last look, as long as it is there.
    fn process(&self, at: &Folder) -> Option<u32> {
        let before = self.running.iter().find(|it| it.cgroup == at.cgroup);
        let is_there = |process: &u32| {
            let path = cgroup_path(Path::new(&format!("/proc/{process}")));
            // Where the path begins depends on this process's cgroup namespace.
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

/// The cgroups that are called after containers. What another user may make is none: whoever has a
/// cgroup delegated, as each user session of systemd has, can call one within it after any container.
fn folders_of_containers(mount: &Path) -> Vec<Folder> {
    let mut found = Vec::new();
    let mut folders = vec![mount.to_owned()];
    while let Some(folder) = folders.pop() {
        if !is_trusted(&folder) {
            continue;
        }
        for (path, cgroup) in below(&folder) {
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

/// The cgroups of this hierarchy of version 1 that are called after containers other than these. Those
/// that are empty may be left over.
fn left_in(hierarchy: &Path, but: &[Folder]) -> Vec<Folder> {
    let known: HashSet<_> = but.iter().map(|it| it.id.as_str()).collect();
    let mut found = folders_of_containers(hierarchy);
    found.retain(|it| !known.contains(it.id.as_str()) && first_process(&it.path).is_some());
    found
}

/// Whether root alone, or this process's own user, can make cgroups in this one.
fn is_trusted(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|it| [0, Uid::effective().as_raw()].contains(&it.uid()))
}

/// The oldest process of a cgroup, as far as ids tell; else one of a cgroup below that is no
/// container's.
fn first_process(folder: &Path) -> Option<u32> {
    let first = processes(folder).into_iter().filter(|id| *id != 0).min();
    first.or_else(|| inner(folder).find_map(|path| first_process(&path)))
}

/// Whether a cgroup, or one below that is no container's, has a process that cannot be seen from here.
fn is_hidden(folder: &Path) -> bool {
    processes(folder).contains(&0) || inner(folder).any(|path| is_hidden(&path))
}

/// The processes of a cgroup. Those that cannot be seen from here are 0.
fn processes(folder: &Path) -> Vec<u32> {
    let ids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    ids.lines().filter_map(|it| it.parse().ok()).collect()
}

/// The cgroups below one that are no containers'.
fn inner(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_containers = |path: &PathBuf| {
        let name = path.file_name().and_then(|it| it.to_str());
        name.is_some_and(|it| container_id(it).is_some())
    };
    let folders = below(folder).map(|(path, _)| path);
    folders.filter(move |path| !is_containers(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn containers_are_found_by_their_cgroups() {
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
        let found = containers.look(mount, None).iter();
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
        assert_eq!(containers.look(mount, None).len(), 3);
    }

    #[test]
    fn those_with_cgroups_of_version_1_alone_are_found_apart() {
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
        assert_eq!(ids(containers.look(&at("unified"), Some(&version_1))), [a]);
        assert_eq!(ids(containers.in_version_1()), [b]);
        containers.look(&at("unified"), None);
        assert!(containers.in_version_1().is_empty());
    }

    #[test]
    fn what_another_user_calls_after_a_container_is_none() {
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
        let found = containers.look(mount.path(), None).iter();
        let found: Vec<_> = found.map(|it| it.id.clone()).collect();
        assert_eq!(found, ["b".repeat(64)]);
    }
}
