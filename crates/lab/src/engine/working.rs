//! The folder that a kernel writes a run's results to, until they have their own.

use std::fs;
use std::io;
use std::path::Path;

use nix::unistd::gethostname;
use tempfile::{Builder, TempDir};

use crate::hold::{Held, hold, turn};

/// A folder that is this process's as long as this lives, and removed then.
pub(super) struct Working {
    folder: TempDir,
    _held: Held,
}

impl Working {
    /// Makes one in a folder, and removes what processes of this host left there that were killed.
    pub fn begin(parent: &Path) -> io::Result<Self> {
        // Locks may hold on one host alone, and others may share the folder.
        let host = gethostname().unwrap_or_default();
        let prefix = format!(".run-{}-", host.to_string_lossy());
        let turn = turn(parent)?;
        if turn.is_some() {
            remove_left(parent, &prefix);
        }
        let folder = Builder::new().prefix(&prefix).tempdir_in(parent)?;
        let _held = hold(folder.path())?;
        Ok(Self { folder, _held })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// What cannot be removed stays.
fn remove_left(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = |name: &str| name.starts_with(prefix);
    for entry in entries.filter(|it| it.file_name().to_str().is_some_and(named)) {
        let path = entry.path();
        let held = hold(&path);
        if held.is_ok_and(|held| held.is_some()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_another_writes_to_stays() {
        let parent = tempfile::tempdir().unwrap();
        let begin = || Working::begin(parent.path()).unwrap();
        let killed = begin();
        fs::write(killed.path().join("sender.pcap"), "packets").unwrap();
        // Its locks end with a process.
        let Working { folder, _held } = killed;
        let left = folder.keep();
        drop(_held);
        let others = parent.path().join(".run-other.host-1");
        fs::create_dir(&others).unwrap();
        let first = begin();
        assert!(!left.exists());
        let second = begin();
        assert!(first.path().exists() && second.path().exists() && others.exists());
        drop((first, second));
        assert_eq!(inside(parent.path()), 1);
    }
}
