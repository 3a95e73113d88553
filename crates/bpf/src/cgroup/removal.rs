//! A cgroup can be removed once no process and no cgroup is in it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::{at, claim};
use crate::Error;

/// Removes a cgroup with all below it, but for those of pillions that are at work; processes
/// go to `refuge`.
pub(super) fn remove(path: &Path, refuge: &Path) -> Result<(), Error> {
    const ATTEMPTS: u32 = 50;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other.map_err(|source| at(path, source)),
        }
        for below in folders(path) {
            remove_unless_in_use(&below, refuge)?;
        }
        evacuate(path, refuge);
        // A process that was killed leaves the cgroup a moment later.
        thread::sleep(Duration::from_millis(20));
    }
    Err(at(path, io::Error::from_raw_os_error(libc::EBUSY)))
}

/// Removes the cgroups of pillions that ended without doing so.
pub(super) fn sweep(parent: &Path) {
    for folder in folders(parent) {
        if claim::is_ours(&folder) {
            let _ = remove_unless_in_use(&folder, parent);
        }
    }
}

fn remove_unless_in_use(path: &Path, refuge: &Path) -> Result<(), Error> {
    if !claim::is_ours(path) {
        return remove(path, refuge);
    }
    match claim::lock(path) {
        Ok(_locked) => remove(path, refuge),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::CgroupInUse {
            path: path.to_owned(),
        }),
        Err(error) => Err(at(path, error)),
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|folder| folder.path()).collect()
}

/// Moves processes one by one, as the kernel wants it; one that ends meanwhile is no
/// failure.
fn evacuate(path: &Path, refuge: &Path) {
    let Ok(processes) = fs::read_to_string(path.join("cgroup.procs")) else {
        return;
    };
    let Ok(mut door) = OpenOptions::new()
        .write(true)
        .open(refuge.join("cgroup.procs"))
    else {
        return;
    };
    for process in processes.lines() {
        let _ = door.write_all(process.as_bytes());
    }
}
