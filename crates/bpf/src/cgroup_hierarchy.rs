//! Where cgroups (v2) are, and what the kernel calls them.

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

/// Where the cgroup v2 hierarchy is mounted; it may stand beside v1.
///
/// # Errors
/// [`Error::NoCgroup2`] if it is not, [`Error::System`] if /proc cannot be read.
pub fn cgroup2_mount() -> Result<PathBuf, Error> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read(path).map_err(|error| Error::system(path, error))?;
    // Another mount may lie over it, as one over all of /sys/fs/cgroup does.
    let is_reached = |mount: &PathBuf| mount.join("cgroup.controllers").exists();
    find(&mounts, "cgroup2")
        .find(is_reached)
        .or_else(|| find(&mounts, "cgroup2").next())
        .ok_or(Error::NoCgroup2)
}

/// Where a hierarchy of version 1 is mounted, if any is: container runtimes use all of them alike.
#[must_use]
pub fn cgroup1_mount() -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let is_reached = |mount: &PathBuf| mount.join("cgroup.procs").exists();
    find(&mounts, "cgroup").find(is_reached)
}

/// Where file systems of this kind are mounted; anybody's mount point may be no text.
fn find(mountinfo: &[u8], wanted: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(move |line| {
            let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            let is_wanted = *fields.get(dash + 1)? == wanted.as_bytes();
            let mount_point = fields[..dash].get(4).filter(|_| is_wanted)?;
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

/// False if what is mounted is a part of the hierarchy, as in a container that has a cgroup namespace
/// of its own: programs that are attached there see the sockets of that part alone.
#[must_use]
pub fn is_whole(mount: &Path) -> bool {
    // The root alone has no type.
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

/// What a user calls cgroups (v2): a path as in `/proc/PID/cgroup`, from the mount point on, in which
/// `*`, `?` and `[...]` stand for what they do in shells. Which cgroups these are may change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupName(PathBuf);

/// How far below the root a cgroup may lie for rules to find it: of each connection the programs know
/// so many cgroups, the root and those nearest to it.
const DEEPEST: usize = (offset_of!(types::connection, is_deep)
    - offset_of!(types::connection, cgroups))
    / size_of::<u64>()
    - 1;

/// A text that is no [`CgroupName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CgroupNameError {
    /// It is no path of a cgroup.
    #[error(
        "expected a cgroup as in /system.slice/game-*.service; /proc/PID/cgroup names that of a \
         process, on the line that begins with 0::"
    )]
    NoPath,
    /// Programs would not find it.
    #[error("a cgroup lies too deep that is more than {DEEPEST} below the root; name one above it")]
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
            ..=DEEPEST => Ok(Self(path.to_owned())),
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
    /// The kernel's ids of the cgroups that have this name now, which rules match against; none
    /// where no hierarchy is mounted.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be told what is mounted.
    pub fn ids(&self) -> Result<Vec<u64>, Error> {
        let mount = match cgroup2_mount() {
            Err(Error::NoCgroup2) => return Ok(Vec::new()),
            mount => mount?,
        };
        let mut found = vec![mount];
        for part in &self.0 {
            found = found.iter().flat_map(|it| matching(it, part)).collect();
        }
        Ok(found.iter().filter_map(|path| id(path)).collect())
    }
}

/// The inode number of a cgroup's folder: its id.
fn id(folder: &Path) -> Option<u64> {
    // The procs file exists in cgroups alone.
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
    fn the_unified_hierarchy_is_found_beside_version_1() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                       32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                       41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let found = |kind| find(mounts, kind).collect::<Vec<_>>();
        assert_eq!(found("cgroup2"), [Path::new("/sys/fs/cgroup/unified")]);
        assert_eq!(found("cgroup"), [Path::new("/sys/fs/cgroup/cpu")]);
    }

    #[test]
    fn a_mount_point_with_a_space_is_unescaped() {
        let mounts = b"41 31 0:38 / /mnt/c\\0402 rw - cgroup2 none rw\n";
        let found: Vec<_> = find(mounts, "cgroup2").collect();
        assert_eq!(found, [Path::new("/mnt/c 2")]);
    }

    #[test]
    fn mount_points_that_are_no_text_are_in_nobodys_way() {
        let mounts = b"40 31 0:37 / /home/\xe4 rw - tmpfs tmpfs rw\n\
                       41 31 0:38 / /mnt/\xff rw - cgroup2 none rw\n";
        let found: Vec<_> = find(mounts, "cgroup2").collect();
        assert_eq!(found, [Path::new(OsStr::from_bytes(b"/mnt/\xff"))]);
    }

    #[test]
    fn without_a_unified_hierarchy_there_is_none() {
        let mounts =
            b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\n32 31 - cgroup2\n";
        assert_eq!(find(mounts, "cgroup2").next(), None);
    }

    #[test]
    fn a_name_is_a_path_below_the_mount_point() {
        for (name, shown) in [("/", "/"), ("a.slice/b-*.service", "/a.slice/b-*.service")] {
            assert_eq!(name.parse::<CgroupName>().unwrap().to_string(), shown);
        }
        for mistake in ["", "..", "/a/../b"] {
            let error = mistake.parse::<CgroupName>().unwrap_err();
            assert_eq!(error, CgroupNameError::NoPath, "{mistake}");
        }
        let deep = |levels: usize| "/a".repeat(levels).parse::<CgroupName>();
        assert!(deep(DEEPEST).is_ok());
        assert_eq!(deep(DEEPEST + 1), Err(CgroupNameError::TooDeep));
        let none = "/no/such-*".parse::<CgroupName>().unwrap().ids();
        assert!(none.unwrap().is_empty());
    }
}
