//! The container or systemd unit that a cgroup belongs to, by the cgroup's name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The unit or container of a process, by its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A unit of the service manager: `sshd.service`, `session-3.scope`.
    Managed(String),
    /// A container, by its id of 64 hexadecimal digits.
    Container(String),
}

/// The digits that runtimes show of a container's id.
pub(crate) const SHORT_ID_DIGITS: usize = 12;

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Managed(name) => f.pad(name),
            Self::Container(id) => write!(f, "container {}", &id[..SHORT_ID_DIGITS]),
        }
    }
}

/// The unit of the process with this folder under `/proc`.
pub(crate) fn unit_of(process: &Path) -> Option<Unit> {
    of_path(&cgroup_path(process)?.to_string_lossy())
}

/// The cgroup of the process with this folder under `/proc`, in the unified hierarchy: a name may be
/// of any bytes but newlines.
pub(crate) fn cgroup_path(process: &Path) -> Option<PathBuf> {
    let cgroups = fs::read(process.join("cgroup")).ok()?;
    // The unified hierarchy's line has no controller names.
    let mut lines = cgroups.split(|byte| *byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::"))?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// The innermost container, otherwise the innermost unit.
pub(crate) fn of_path(path: &str) -> Option<Unit> {
    let container = path.rsplit('/').find_map(container_id);
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    let managed = || path.rsplit('/').find(is_unit);
    container
        .map(|id| Unit::Container(id.to_owned()))
        .or_else(|| managed().map(|name| Unit::Managed(name.to_owned())))
}

/// The id in a cgroup's name: by itself, or as in `docker-ID.scope`, `cri-containerd-ID.scope`. A
/// monitor, as in `libpod-conmon-ID.scope`, does not count.
pub(crate) fn container_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit(['-', ':']).next()?;
    let is_id = id.len() == 64 && id.bytes().all(|it| it.is_ascii_hexdigit());
    let is_monitor = name[..name.len() - id.len()].ends_with("conmon-");
    (is_id && !is_monitor).then_some(id)
}

/// The unit of each cgroup by id, from its name or a parent's, for all cgroups below this folder of
/// the cgroup v2 file system.
#[must_use]
pub fn cgroup_units(mount: &Path) -> HashMap<u64, Unit> {
    let mut units = HashMap::new();
    let mut folders = vec![mount.to_owned()];
    while let Some(folder) = folders.pop() {
        for (path, id) in children(&folder) {
            let name = path.strip_prefix(mount).unwrap_or(&path).to_string_lossy();
            if let Some(unit) = of_path(&name) {
                units.insert(id, unit);
            }
            folders.push(path);
        }
    }
    units
}

/// The cgroups right below one, with the kernel's ids of them.
pub(crate) fn children(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> + use<> {
    /// Links to a folder with none in it: its name and its own dot.
    const NO_SUBDIRECTORIES: u64 = 2;
    // Most cgroups have dozens of files and no folder: their files need not be gone through.
    let has_children = fs::metadata(folder).is_ok_and(|it| it.nlink() != NO_SUBDIRECTORIES);
    let entries = has_children.then(|| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_folder = |it: &fs::DirEntry| it.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.into_iter().flatten().filter(is_folder);
    folders.map(|it| (it.path(), it.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn container_takes_precedence_over_innermost_unit() {
        let of = |path: &str| of_path(path).map(|unit| unit.to_string());
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(of("/"), None);
        assert_eq!(of("/system.slice/sshd.service"), some("sshd.service"));
        assert_eq!(
            of("/user.slice/user-1000.slice/user@1000.service/app.slice/game.scope"),
            some("game.scope")
        );
        let container = some("container 0123456789ab");
        assert_eq!(of(&format!("/docker/{ID}")), container);
        assert_eq!(of(&format!("/system.slice/docker-{ID}.scope")), container);
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        assert_eq!(of(&format!("/{pod}/cri-containerd-{ID}.scope")), container);
        assert_eq!(
            of(&format!("/machine.slice/libpod-{ID}.scope/container")),
            container
        );
    }

    #[test]
    fn cgroup_below_unit_belongs_to_unit() {
        let mount = tempfile::tempdir().unwrap();
        let children = mount.path().join("system.slice/game.service/worker");
        fs::create_dir_all(&children).unwrap();
        let units = cgroup_units(mount.path());
        let of = |path: &Path| units.get(&fs::metadata(path).unwrap().ino());
        let game = Unit::Managed("game.service".to_owned());
        assert_eq!(of(&children), Some(&game));
        assert_eq!(of(children.parent().unwrap()), Some(&game));
        assert_eq!(of(&mount.path().join("system.slice")), None);
    }
}
