use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::host::pattern::matching;

use super::cgroup2_mount;
use crate::Error;
use crate::contract::types;

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
