//! Which cgroups are a pillion's, and which of these are of use: a name tells the first, a lock
//! the second. A process id could not: other namespaces have the same ones.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::host::held_file;
use nix::errno::Errno;
use nix::fcntl::Flock;

use super::at;
use crate::Error;

/// What the names of pillion's cgroups begin with, before sixteen random hexadecimal digits.
const PREFIX: &str = "pillion-";

/// Makes a folder with a name of its own and locks it. The kernel lets go of the lock when the
/// process ends, however it ends.
pub(super) fn make(parent: &Path) -> Result<(PathBuf, Flock<File>), Error> {
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
pub(super) fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.strip_prefix(PREFIX));
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_hex))
}

/// Locks the folder that has this path, as long as the result lives.
pub(super) fn lock(path: &Path) -> io::Result<Flock<File>> {
    let locked = held_file::lock(File::open(path)?)?;
    match held_file::is_at(&locked, path)? {
        true => Ok(locked),
        // It was removed meanwhile, and made anew.
        false => Err(Errno::ESTALE.into()),
    }
}
