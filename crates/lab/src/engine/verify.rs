//! Repeats a run and compares it with the first one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{EngineError, HOST_FILE, Image, Machine, run_virtually};
use crate::run::RUN_FILE;
use crate::settings::experiment::Run;

/// Repeats a run, as [`run_virtually`] does, and compares it with the existing folder. Ignores the
/// facts about the host, and the run's own file, whose text may differ without a difference in
/// meaning.
///
/// # Errors
/// As [`run_virtually`]; [`EngineError::System`] if a file cannot be read.
pub fn verify(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    on_progress: impl FnMut(Duration),
) -> Result<Vec<Difference>, EngineError> {
    let scratch = tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
    let rerun = scratch.path().join("again");
    run_virtually(machine, image, pillion, run, &rerun, stop, on_progress)
        .map_err(|failed| failed.error)?;
    differences(folder, &rerun, &[HOST_FILE, RUN_FILE])
        .map_err(EngineError::system("compare the runs"))
}

/// A difference between two folders.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A file exists in only one folder.
    #[error("{} exists in only one of them", .0.display())]
    OnlyInOne(PathBuf),
    /// Two files differ from this byte, counted from 0.
    #[error("{} differs from byte {at}", file.display())]
    Content {
        /// The file that differs, within the folders.
        file: PathBuf,
        /// The first differing byte, counted from 0.
        at: u64,
    },
}

/// Returns all files that differ between two folders, in the order of their names, without
/// `except`.
///
/// # Errors
/// Errors of reading the folders and files.
pub fn differences(one: &Path, other: &Path, except: &[&str]) -> io::Result<Vec<Difference>> {
    let (here, there) = (files(one, except)?, files(other, except)?);
    let mut result = Vec::new();
    for file in here.union(&there) {
        if !(here.contains(file) && there.contains(file)) {
            result.push(Difference::OnlyInOne(file.clone()));
        } else if let Some(at) = first_byte(&one.join(file), &other.join(file))? {
            let file = file.clone();
            result.push(Difference::Content { file, at });
        }
    }
    Ok(result)
}

fn files(folder: &Path, except: &[&str]) -> io::Result<BTreeSet<PathBuf>> {
    let mut result = BTreeSet::new();
    let mut pending = Vec::from([PathBuf::new()]);
    while let Some(inner) = pending.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else if !except.iter().any(|name| path == Path::new(name)) {
                result.insert(path);
            }
        }
    }
    Ok(result)
}

fn first_byte(one: &Path, other: &Path) -> io::Result<Option<u64>> {
    let (mut one, mut other) = (
        BufReader::new(File::open(one)?).bytes(),
        BufReader::new(File::open(other)?).bytes(),
    );
    let mut at = 0;
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(None),
            (here, there) if here == there => at += 1,
            _ => return Ok(Some(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_differences_are_listed_without_excluded_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (side, last) in [("a", "1"), ("b", "2")] {
            fs::create_dir_all(path(side).join("inner")).unwrap();
            fs::write(path(side).join("same"), "same").unwrap();
            fs::write(path(side).join("host"), last).unwrap();
        }
        let compare = || differences(&path("a"), &path("b"), &["host"]).unwrap();
        assert_eq!(compare(), []);
        fs::write(path("a/alone"), "").unwrap();
        fs::write(path("a/inner/z"), "long").unwrap();
        fs::write(path("b/inner/z"), "lo").unwrap();
        let alone = Difference::OnlyInOne("alone".into());
        let content = |at| Difference::Content {
            file: "inner/z".into(),
            at,
        };
        assert_eq!(compare(), [alone.clone(), content(2)]);
        fs::write(path("b/inner/z"), "lone").unwrap();
        assert_eq!(compare(), [alone, content(3)]);
        let line = content(3).to_string();
        assert_eq!(line, "inner/z differs from byte 3");
    }
}
