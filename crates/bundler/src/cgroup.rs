use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

/// A cgroup (v2) of our own, below the one this process is in, so that the limits
/// set there go on to hold.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
    folder: File,
}

/// What our cgroups are called, before the process id of their maker.
const PREFIX: &str = "pillion-";

impl Cgroup {
    /// Makes the cgroup; also clears away those whose makers were killed along with
    /// their janitor.
    ///
    /// # Errors
    /// [`Error::NoCgroup2`], or [`Error::Cgroup`] with what the kernel said.
    pub fn create() -> Result<Self, Error> {
        let parent = own_cgroup()?;
        sweep(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|source| at(&path, source))?;
        let folder = File::open(&path).map_err(|source| at(&path, source))?;
        Ok(Self {
            path,
            parent,
            folder,
        })
    }

    /// The folder, as the kernel's interfaces want it.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// A file that a process joins the cgroup by writing `0` to.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn door(&self) -> Result<File, Error> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|source| at(&path, source))
    }

    /// Removes the cgroup; processes still in it go back to where this one is.
    ///
    /// # Errors
    /// [`Error::Cgroup`] if processes are born there faster than they can be moved.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.path, &self.parent).map_err(|source| at(&self.path, source))
    }
}

fn at(path: &Path, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted {
            action: format!("use the cgroup {}", path.display()),
        },
        _ => Error::Cgroup {
            path: path.to_owned(),
            source,
        },
    }
}

fn remove(path: &Path, parent: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 50;
    for attempt in 0..ATTEMPTS {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt + 1 < ATTEMPTS => {
                evacuate(path, parent);
                // A process that was killed leaves the cgroup a moment later.
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Ok(())
}

/// Moves processes one by one, as the kernel wants it; one that ends meanwhile is no
/// failure.
fn evacuate(path: &Path, parent: &Path) {
    let Ok(processes) = fs::read_to_string(path.join("cgroup.procs")) else {
        return;
    };
    let Ok(mut door) = OpenOptions::new()
        .write(true)
        .open(parent.join("cgroup.procs"))
    else {
        return;
    };
    for process in processes.lines() {
        let _ = door.write_all(process.as_bytes());
    }
}

fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = remove(&entry.path(), parent);
        }
    }
}

/// Where the cgroup v2 hierarchy is mounted; it may stand beside v1.
///
/// # Errors
/// [`Error::NoCgroup2`] if it is not, [`Error::System`] if /proc cannot be read.
pub fn cgroup2_mount() -> Result<PathBuf, Error> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(path).map_err(|error| Error::system(path, error))?;
    find_cgroup2(&mounts).ok_or(Error::NoCgroup2)
}

fn find_cgroup2(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mount_point = mount.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ")
            .then(|| PathBuf::from(unescape(mount_point)))
    })
}

/// Spaces and the like are written as `\040` in mountinfo.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
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
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The kernel's id of a cgroup (v2), which rules match against.
///
/// `path` is as in `/proc/PID/cgroup`: from the mount point on, with or without a `/` in
/// front.
///
/// # Errors
/// [`Error::NoCgroup2`], or [`Error::Cgroup`] where it does not exist.
pub fn cgroup_id(path: &str) -> Result<u64, Error> {
    let folder = cgroup2_mount()?.join(path.trim_start_matches('/'));
    // The procs file exists in cgroups alone; its folder's inode number is the id.
    fs::metadata(folder.join("cgroup.procs"))
        .and_then(|_| fs::metadata(&folder))
        .map(|cgroup| cgroup.ino())
        .map_err(|source| at(&folder, source))
}

fn own_cgroup() -> Result<PathBuf, Error> {
    let mount = cgroup2_mount()?;
    let path = "/proc/self/cgroup";
    let memberships = fs::read_to_string(path).map_err(|error| Error::system(path, error))?;
    let own = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or("");
    Ok(mount.join(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_beside_version_1() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(
            find_cgroup2(mounts),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
    }

    #[test]
    fn a_mount_point_with_a_space_is_unescaped() {
        let mounts = "41 31 0:38 / /mnt/c\\0402 rw - cgroup2 none rw\n";
        assert_eq!(find_cgroup2(mounts), Some(PathBuf::from("/mnt/c 2")));
    }

    #[test]
    fn without_a_unified_hierarchy_there_is_none() {
        assert_eq!(
            find_cgroup2("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"),
            None
        );
    }
}
