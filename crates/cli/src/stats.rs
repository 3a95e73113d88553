//! The file of `--stats`: whole at any moment, for it is put in place of the one before.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pillion_bundler::{Attachment, Totals};

use crate::exit::one_line;
use crate::lent::refuse;
use crate::print::say;

/// How old the file may be while pillion runs.
const EVERY: Duration = Duration::from_secs(10);

/// Where the account goes, if that is wanted.
pub struct Stats {
    path: Option<PathBuf>,
    next: Instant,
    has_failed: bool,
}

impl Stats {
    /// To the file with this name, if there is one. It is known then that it can be written; nothing
    /// is written yet.
    pub fn to(path: Option<PathBuf>) -> Result<Self> {
        if let Some(path) = &path {
            refuse("--stats")?;
            let opened = match place(path) {
                Some(place) => beside(&place).and_then(|(_, path)| fs::remove_file(path)),
                None => open(path).map(drop),
            };
            opened.with_context(|| failed(path))?;
        }
        Ok(Self {
            path,
            next: Instant::now(),
            has_failed: false,
        })
    }

    /// Writes it if it was last written long ago.
    pub fn keep_up(&mut self, attachment: &Attachment) {
        if self.path.is_some() && Instant::now() >= self.next {
            self.now(attachment);
        }
    }

    /// Writes it; what fails is said once, until it succeeds.
    pub fn now(&mut self, attachment: &Attachment) {
        self.next = Instant::now() + EVERY;
        let totals = attachment.totals().map_err(anyhow::Error::from);
        let written = totals.and_then(|totals| self.write(&totals));
        if let (Err(error), false) = (&written, self.has_failed) {
            say(&format!("pillion: {}; trying again", one_line(error)));
        }
        self.has_failed = written.is_err();
    }

    pub fn write(&self, totals: &Totals) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(totals)? + "\n";
        let written = match place(path) {
            Some(place) => replace(&place, &text),
            None => open(path).and_then(|mut file| file.write_all(text.as_bytes())),
        };
        written.with_context(|| failed(path))
    }
}

fn failed(path: &Path) -> String {
    format!("write --stats {}", path.display())
}

/// The regular file that is to be replaced; `None` for a pipe, a terminal and the like.
fn place(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => Some(path.to_owned()),
    }
}

/// A pipe without a reader is no place to wait at.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

fn replace(place: &Path, text: &str) -> io::Result<()> {
    let (mut file, path) = beside(place)?;
    file.write_all(text.as_bytes())?;
    fs::rename(path, place)
}

/// A new file in the folder of another one, with its rights. It always has the same name, so that
/// no more than one is ever left by a pillion that was killed.
fn beside(place: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = OsString::from(".");
    name.push(place.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(".new");
    let path = place.with_file_name(name);
    let _ = fs::remove_file(&path);
    let mut options = File::options();
    let file = options.write(true).create_new(true).open(&path)?;
    if let Ok(known) = fs::metadata(place) {
        file.set_permissions(known.permissions())?;
    }
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_rights_and_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("stats"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("stats", &link).unwrap();
        let mut held = File::open(&file).unwrap();
        let stats = Stats::to(Some(link.clone())).unwrap();
        stats.write(&Totals::default()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let rights = fs::metadata(&file).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, 0o640);
        assert!(fs::read_to_string(&file).unwrap().ends_with("}\n"));
        assert_eq!(io::read_to_string(&mut held).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_regular_file_is_written_to() {
        let stats = Stats::to(Some("/dev/null".into())).unwrap();
        stats.write(&Totals::default()).unwrap();
        assert!(Stats::to(Some("/nonexistent/stats".into())).is_err());
    }
}
