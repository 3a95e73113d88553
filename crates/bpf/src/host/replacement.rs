//! A file that is written anew: what is there stays until the new one is whole.

use std::fs;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use tempfile::NamedTempFile;

use crate::host::new_file;

/// A new file that takes the place of another, or of none; dropped before it is finished, it is
/// removed.
#[derive(Debug)]
pub struct Replacement {
    new: NamedTempFile<Flock<File>>,
    place: PathBuf,
}

impl Replacement {
    /// Begins one for what is at this path, where a link is followed; with the rights of the file
    /// that is there, and never with more. `None` where no file can take the place of what is
    /// there: a pipe, a terminal and the like.
    ///
    /// # Errors
    /// As [`new_file::place`] and [`new_file::create`].
    pub fn begin(path: &Path) -> io::Result<Option<Self>> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let place = new_file::place(path)?;
        let known = fs::metadata(&place).map(|known| known.permissions()).ok();
        let mode = known.as_ref().map_or(0o666, PermissionsExt::mode);
        let new = new_file::create(&place, mode)?;
        if let Some(known) = known {
            new.as_file().set_permissions(known)?;
        }
        Ok(Some(Self { new, place }))
    }

    /// Puts it into its place.
    ///
    /// # Errors
    /// What the system says; what was there is there still, unless something is mounted there.
    pub fn finish(self) -> io::Result<()> {
        match self.new.persist(&self.place) {
            // A single file is mounted there, as in a container: nothing can take its place.
            Err(error) if error.error.raw_os_error() == Some(libc::EBUSY) => {
                fs::copy(error.file.path(), &self.place).map(drop)
            }
            persisted => Ok(persisted.map(drop)?),
        }
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &**self.new.as_file()).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut &**self.new.as_file()).flush()
    }
}
