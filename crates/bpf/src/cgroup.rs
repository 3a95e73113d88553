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

/// A cgroup (v2) of our own, below the one this process is in, so that the limits
/// set there go on to hold.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
    /// The cgroup's folder, locked as long as it is of use.
    folder: Flock<File>,
}

impl Cgroup {
    /// Makes the cgroup; also clears away those whose makers were killed along with
    /// their janitor.
    ///
    /// # Errors
    /// [`Error::NoCgroup2`], [`Error::ThreadedCgroup`], or [`Error::Cgroup`] with what the
    /// kernel said.
    pub fn create() -> Result<Self, Error> {
        let parent = own_cgroup()?;
        sweep(&parent);
        if is_threaded(&parent) {
            return Err(Error::ThreadedCgroup { path: parent });
        }
        let (path, folder) = make_locked(&parent)?;
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

    /// Removes the cgroup and those that were made below it; processes still in them go
    /// back to where this one is.
    ///
    /// # Errors
    /// [`Error::CgroupInUse`] if another pillion is at work in it; [`Error::Cgroup`] if
    /// processes are born there faster than they can be moved.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.path, &self.parent)
    }
}

/// The root of cgroups, as far as it is seen from here: every socket's is it or below it.
///
/// # Errors
/// As [`cgroup2_mount`]; [`Error::Cgroup`] with what the kernel said.
pub fn open_cgroup2() -> Result<File, Error> {
    let mount = cgroup2_mount()?;
    File::open(&mount).map_err(|source| at(&mount, source))
}

/// No process can join what is made below such a cgroup. The root has no type.
fn is_threaded(path: &Path) -> bool {
    let kind = fs::read_to_string(path.join("cgroup.type"));
    kind.is_ok_and(|kind| kind.trim_end() != "domain")
}

fn at(path: &Path, source: io::Error) -> Error {
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

/// What the names of pillion's cgroups begin with, before sixteen random hexadecimal digits.
const PREFIX: &str = "pillion-";

/// Makes a folder with a name of its own and locks it. The kernel lets go of the lock when the
/// process ends, however it ends.
fn make_locked(parent: &Path) -> Result<(PathBuf, Flock<File>), Error> {
    const ATTEMPTS: u32 = 10;
    let mut refusal = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        let path = parent.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(|source| at(&path, source))?,
        }
        match lock(&path) {
            Ok(folder) => return Ok((path, folder)),
            // Another pillion took it for abandoned before it was locked.
            Err(error) => refusal = error,
        }
    }
    Err(at(parent, refusal))
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
        // It was removed meanwhile, and made anew.
        false => Err(Errno::ESTALE.into()),
    }
}

/// Removes a cgroup with all below it, but for those of pillions that are at work; processes
/// go to `refuge`.
fn remove(path: &Path, refuge: &Path) -> Result<(), Error> {
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
fn sweep(parent: &Path) {
    for folder in folders(parent) {
        if is_ours(&folder) {
            let _ = remove_unless_in_use(&folder, parent);
        }
    }
}

fn remove_unless_in_use(path: &Path, refuge: &Path) -> Result<(), Error> {
    if !is_ours(path) {
        return remove(path, refuge);
    }
    match lock(path) {
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
