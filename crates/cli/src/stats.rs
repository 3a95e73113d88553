//! The file of `--stats`: whole at any moment, for it is put in place of the one before.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pillion_bundler::{Attachment, Totals};
use tempfile::Builder;

use crate::exit::one_line;
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
    pub fn to(path: Option<PathBuf>) -> Self {
        Self {
            path,
            next: Instant::now(),
            has_failed: false,
        }
    }

    /// Finds out before anything is begun whether it can be written.
    pub fn check(&self) -> Result<()> {
        self.path.iter().try_for_each(|path| {
            let opened = match place(path) {
                Some(place) => beside(&place).map(drop),
                None => open(path).map(drop),
            };
            opened.with_context(|| failed(path))
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
    let mut file = beside(place)?;
    file.write_all(text.as_bytes())?;
    file.persist(place).map_err(|error| error.error)?;
    Ok(())
}

/// A file in the folder of another one, with its rights.
fn beside(place: &Path) -> io::Result<tempfile::NamedTempFile> {
    let rights = fs::metadata(place).map_or(Permissions::from_mode(0o666), |it| it.permissions());
    let name = place.file_name().ok_or(ErrorKind::IsADirectory)?;
    let mut prefix = OsString::from(".");
    prefix.push(name);
    let folder = place
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = Builder::new();
    builder.prefix(&prefix).permissions(rights);
    builder.tempfile_in(folder.unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_rights_and_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("stats"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("stats", &link).unwrap();
        let mut held = File::open(&file).unwrap();
        let stats = Stats::to(Some(link.clone()));
        stats.check().unwrap();
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
        let stats = Stats::to(Some("/dev/null".into()));
        stats.check().unwrap();
        stats.write(&Totals::default()).unwrap();
        assert!(
            Stats::to(Some("/nonexistent/stats".into()))
                .check()
                .is_err()
        );
    }
}
