//! The cgroup (v2) that pillion makes for itself. A name shows which cgroups are a pillion's, and a
//! lock which of these are in use: process ids would not do, because other namespaces have the same.
//! A cgroup can be removed once no process and no cgroup is in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::Flock;

use crate::Error;
use crate::cgroup_hierarchy::{cgroup2_mount, own_cgroup};
use crate::host::atomic_file;

/// A cgroup (v2) of pillion, below the one of this process, whose limits continue to apply.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
    /// The cgroup's folder, locked as long as it is of use.
    folder: Flock<File>,
}

impl Cgroup {
    /// Creates the cgroup, and removes cgroups of killed pillions that had no cleanup helper.
    ///
    /// # Errors
    ///
    /// [`Error::NoCgroup2`], [`Error::ThreadedCgroup`], or [`Error::Cgroup`] with the kernel's
    /// error.
    pub fn create() -> Result<Self, Error> {
        let parent = own_cgroup()?;
        remove_stale(&parent);
        if is_threaded(&parent) {
            return Err(Error::ThreadedCgroup { path: parent });
        }
        let (path, folder) = create_locked(&parent)?;
        Ok(Self {
            path,
            parent,
            folder,
        })
    }

    /// The cgroup's folder, as the kernel's interfaces want it.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Opens `cgroup.procs`. A process that writes `0` to it joins the cgroup.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn procs(&self) -> Result<File, Error> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|source| cgroup_error(&path, source))
    }

    /// Removes the cgroup and those created below it; their remaining processes return to this
    /// process's cgroup.
    ///
    /// # Errors
    ///
    /// [`Error::CgroupInUse`] if another pillion is running in it; [`Error::Cgroup`] if processes
    /// are created there faster than they can be moved.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.path, &self.parent)
    }
}

/// Opens the visible root of cgroups, which contains every socket's cgroup.
///
/// # Errors
///
/// As [`cgroup2_mount`]; [`Error::Cgroup`] with the kernel's error.
pub fn open_cgroup2() -> Result<File, Error> {
    let mount = cgroup2_mount()?;
    File::open(&mount).map_err(|source| cgroup_error(&mount, source))
}

/// True for a threaded cgroup: no process can join a cgroup below it. The root has no type file.
fn is_threaded(path: &Path) -> bool {
    let kind = fs::read_to_string(path.join("cgroup.type"));
    kind.is_ok_and(|kind| kind.trim_end() != "domain")
}

fn cgroup_error(path: &Path, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EROFS) => Error::ReadOnlyCgroups {
            path: path.to_owned(),
        },
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted {
            action: format!("use the cgroup {}", path.display()),
        },
        _ => Error::Cgroup {
            path: path.to_owned(),
            source,
        },
    }
}

/// Prefix of the names of pillion's cgroups, before sixteen random hexadecimal digits.
const PREFIX: &str = "pillion-";

/// Creates a folder with a unique name and locks it. The kernel releases the lock when the process
/// ends.
fn create_locked(parent: &Path) -> Result<(PathBuf, Flock<File>), Error> {
    const ATTEMPTS: u32 = 10;
    let mut last_error = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        let path = parent.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created.map_err(|source| cgroup_error(&path, source))?,
        }
        match lock(&path) {
            Ok(folder) => return Ok((path, folder)),
            // Another pillion took it for abandoned before it was locked.
            Err(error) => last_error = error,
        }
    }
    Err(cgroup_error(parent, last_error))
}

/// Is this the name of a pillion's cgroup?
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.strip_prefix(PREFIX));
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_hex))
}

/// Locks the folder that has this path, as long as the result lives.
fn lock(path: &Path) -> io::Result<Flock<File>> {
    let locked = atomic_file::lock(File::open(path)?)?;
    match atomic_file::is_at(&locked, path)? {
        true => Ok(locked),
        // It was removed and created again meanwhile.
        false => Err(Errno::ESTALE.into()),
    }
}

/// Removes a cgroup and all below it, except cgroups of running pillions; processes move to `target`.
fn remove(path: &Path, target: &Path) -> Result<(), Error> {
    const ATTEMPTS: u32 = 50;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other.map_err(|source| cgroup_error(path, source)),
        }
        for below in folders(path) {
            remove_unless_in_use(&below, target)?;
        }
        move_processes(path, target);
        // A process that was killed leaves the cgroup a moment later.
        thread::sleep(Duration::from_millis(20));
    }
    Err(cgroup_error(
        path,
        io::Error::from_raw_os_error(libc::EBUSY),
    ))
}

/// Removes the cgroups of pillions that ended without doing so.
fn remove_stale(parent: &Path) {
    for folder in folders(parent) {
        if is_ours(&folder) {
            let _ = remove_unless_in_use(&folder, parent);
        }
    }
}

fn remove_unless_in_use(path: &Path, target: &Path) -> Result<(), Error> {
    if !is_ours(path) {
        return remove(path, target);
    }
    match lock(path) {
        Ok(_locked) => remove(path, target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::CgroupInUse {
            path: path.to_owned(),
        }),
        Err(error) => Err(cgroup_error(path, error)),
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|folder| folder.path()).collect()
}

/// Moves processes one by one, as the kernel requires; ignores processes that end meanwhile.
fn move_processes(path: &Path, target: &Path) {
    let Ok(processes) = fs::read_to_string(path.join("cgroup.procs")) else {
        return;
    };
    let Ok(mut procs) = OpenOptions::new()
        .write(true)
        .open(target.join("cgroup.procs"))
    else {
        return;
    };
    for process in processes.lines() {
        let _ = procs.write_all(process.as_bytes());
    }
}
