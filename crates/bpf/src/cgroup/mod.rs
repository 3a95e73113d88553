mod claim;
mod hierarchy;
mod name;
mod removal;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use crate::Error;
use hierarchy::own_cgroup;
pub use hierarchy::{cgroup1_mount, cgroup2_mount, is_whole};
pub use name::{CgroupName, CgroupNameError};

/// A cgroup (v2) of our own, below the one this process is in, so that the limits
/// set there go on to hold.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
    /// The cgroup's folder, locked as long as it is of use: [`claim`].
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
        removal::sweep(&parent);
        if is_threaded(&parent) {
            return Err(Error::ThreadedCgroup { path: parent });
        }
        let (path, folder) = claim::make(&parent)?;
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
        removal::remove(&self.path, &self.parent)
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
