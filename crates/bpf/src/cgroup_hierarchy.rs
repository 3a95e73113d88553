//! The mount points of cgroups (v2), and the kernel's ids of cgroups.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::Error;
use crate::contract::types;
use crate::host::pattern::matching;

/// The mount point of the cgroup v2 hierarchy, which may coexist with v1.
///
/// # Errors
///
/// [`Error::NoCgroup2`] if it is not mounted, [`Error::System`] if /proc cannot be read.
pub fn cgroup2_mount() -> Result<PathBuf, Error> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read(path).map_err(|error| Error::system(path, error))?;
    // Another mount may lie over it, as one over all of /sys/fs/cgroup does.
    let is_visible = |mount: &PathBuf| mount.join("cgroup.controllers").exists();
    find(&mounts, "cgroup2")
        .find(is_visible)
        .or_else(|| find(&mounts, "cgroup2").next())
        .ok_or(Error::NoCgroup2)
}

/// Where a hierarchy of version 1 is mounted, if any is: container runtimes use all of them alike.
#[must_use]
pub fn cgroup1_mount() -> Option<PathBuf> {
    let is_visible = |mount: &PathBuf| mount.join("cgroup.procs").exists();
    mounts("cgroup").into_iter().find(is_visible)
}

/// The mount points of this file system type; none if /proc cannot be read.
pub(crate) fn mounts(kind: &str) -> Vec<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    find(&mounts, kind).collect()
}

/// The mount points of this file system type; a mount point may hold any bytes.
fn find(mountinfo: &[u8], kind: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(move |line| {
            let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            let is_kind = *fields.get(dash + 1)? == kind.as_bytes();
            let mount_point = fields[..dash].get(4).filter(|_| is_kind)?;
            Some(PathBuf::from(unescape(mount_point)))
        })
}

/// Undoes mountinfo's escapes: spaces and the like are written there as `\040`.
fn unescape(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// False if only a part of the hierarchy is mounted, as in a container with a cgroup namespace:
/// programs attached there only see the sockets of that part.
#[must_use]
pub fn is_full_hierarchy(mount: &Path) -> bool {
    // Only the root has no type file.
    !mount.join("cgroup.type").exists()
}

/// The folder of the cgroup that this process is in.
pub(crate) fn own_cgroup() -> Result<PathBuf, Error> {
    let mount = cgroup2_mount()?;
    let path = "/proc/self/cgroup";
    let memberships = fs::read(path).map_err(|error| Error::system(path, error))?;
    let mut lines = memberships.split(|byte| *byte == b'\n');
    let own = lines.find_map(|line| line.strip_prefix(b"0::/"));
    Ok(mount.join(OsStr::from_bytes(own.unwrap_or_default())))
}

/// A user's name for cgroups (v2): a path as in `/proc/PID/cgroup`, relative to the mount point,
/// with the shell wildcards `*`, `?` and `[...]`. The matching cgroups may change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupName(PathBuf);

/// Maximum depth of a cgroup in rules: the programs store this many cgroups of each connection, the
/// root and the nearest to it.
const MAX_DEPTH: usize = (offset_of!(types::connection, is_too_deep)
    - offset_of!(types::connection, cgroups))
    / size_of::<u64>()
    - 1;

/// An invalid [`CgroupName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CgroupNameError {
    /// The text is not the path of a cgroup.
    #[error(
        "expected a cgroup as in /system.slice/game-*.service; /proc/PID/cgroup names that of a \
         process, on the line that starts with 0::"
    )]
    NoPath,
    /// Programs would not find it.
    #[error(
        "cgroup too deep: expected at most {MAX_DEPTH} levels below the root; name one above it"
    )]
    TooDeep,
}

impl FromStr for CgroupName {
    type Err = CgroupNameError;

    fn from_str(text: &str) -> Result<Self, CgroupNameError> {
        let path = Path::new(text.trim_start_matches('/'));
        let is_plain = |part| matches!(part, Component::Normal(_));
        if text.is_empty() || !path.components().all(is_plain) {
            return Err(CgroupNameError::NoPath);
        }
        match path.components().count() {
            ..=MAX_DEPTH => Ok(Self(path.to_owned())),
            _ => Err(CgroupNameError::TooDeep),
        }
    }
}

impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

impl CgroupName {
    /// The kernel's ids of the cgroups that have this name now, which rules match against; empty if
    /// no hierarchy is mounted.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the mounts cannot be read.
    pub fn ids(&self) -> Result<Vec<u64>, Error> {
        let mount = match cgroup2_mount() {
            Err(Error::NoCgroup2) => return Ok(Vec::new()),
            mount => mount?,
        };
        let mut mounts_of = vec![mount];
        for part in &self.0 {
            mounts_of = mounts_of.iter().flat_map(|it| matching(it, part)).collect();
        }
        Ok(mounts_of.iter().filter_map(|path| id(path)).collect())
    }
}

/// The inode number of a cgroup's folder: its id.
fn id(folder: &Path) -> Option<u64> {
    // Only cgroups have a procs file.
    let is_cgroup = match fs::symlink_metadata(folder.join("cgroup.procs")) {
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
        Ok(_) => true,
    };
    is_cgroup
        .then(|| fs::metadata(folder).ok())?
        .map(|it| it.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unified_hierarchy_found_next_to_version_1() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                       32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                       41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let mounts_of = |kind| find(mounts, kind).collect::<Vec<_>>();
        assert_eq!(mounts_of("cgroup2"), [Path::new("/sys/fs/cgroup/unified")]);
        assert_eq!(mounts_of("cgroup"), [Path::new("/sys/fs/cgroup/cpu")]);
    }

    #[test]
    fn mount_point_with_space_is_unescaped() {
        let mounts = b"41 31 0:38 / /mnt/c\\0402 rw - cgroup2 none rw\n";
        let mounts_of: Vec<_> = find(mounts, "cgroup2").collect();
        assert_eq!(mounts_of, [Path::new("/mnt/c 2")]);
    }

    #[test]
    fn non_utf8_mount_point_is_found() {
        let mounts = b"40 31 0:37 / /home/\xe4 rw - tmpfs tmpfs rw\n\
                       41 31 0:38 / /mnt/\xff rw - cgroup2 none rw\n";
        let mounts_of: Vec<_> = find(mounts, "cgroup2").collect();
        assert_eq!(mounts_of, [Path::new(OsStr::from_bytes(b"/mnt/\xff"))]);
    }

    #[test]
    fn no_mount_found_without_unified_hierarchy() {
        let mounts =
            b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\n32 31 - cgroup2\n";
        assert_eq!(find(mounts, "cgroup2").next(), None);
    }

    #[test]
    fn cgroup_name_is_path_below_mount_point() {
        for (name, shown) in [("/", "/"), ("a.slice/b-*.service", "/a.slice/b-*.service")] {
            assert_eq!(name.parse::<CgroupName>().unwrap().to_string(), shown);
        }
        for mistake in ["", "..", "/a/../b"] {
            let error = mistake.parse::<CgroupName>().unwrap_err();
            assert_eq!(error, CgroupNameError::NoPath, "{mistake}");
        }
        let deep = |levels: usize| "/a".repeat(levels).parse::<CgroupName>();
        assert!(deep(MAX_DEPTH).is_ok());
        assert_eq!(deep(MAX_DEPTH + 1), Err(CgroupNameError::TooDeep));
        let none = "/no/such-*".parse::<CgroupName>().unwrap().ids();
        assert!(none.unwrap().is_empty());
    }
}
