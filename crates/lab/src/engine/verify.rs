//! A run made again, and its differences to the first.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{EngineError, HOST_FILE, Image, Machine, run_virtually};
use crate::run::RUN_FILE;
use crate::settings::experiment::Run;

/// Makes a run again, as [`run_virtually`] does, and finds the differences to the folder
/// that is there: but in what tells of the host, and in the run's own file, which may say the same
/// in other words.
///
/// # Errors
/// As [`run_virtually`]; [`EngineError::System`] where a file cannot be read.
pub fn verify(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    reached: impl FnMut(Duration),
) -> Result<Vec<Difference>, EngineError> {
    let beside = tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
    let again = beside.path().join("again");
    run_virtually(machine, image, pillion, run, &again, stop, reached)
        .map_err(|failed| failed.error)?;
    differences(folder, &again, &[HOST_FILE, RUN_FILE])
        .map_err(EngineError::system("compare the runs"))
}

/// How two folders differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A file is in one of them alone.
    #[error("{} is in one of them alone", .0.display())]
    OnlyInOne(PathBuf),
    /// Two files differ from this byte on, counted from 0.
    #[error("{} differs from byte {at} on", file.display())]
    Content {
        /// The file that differs, within the folders.
        file: PathBuf,
        /// The first byte that differs, counted from 0.
        at: u64,
    },
}

/// Finds all files in which two folders differ, in the order of their names; `except` left out.
///
/// # Errors
/// The system's, of reading the folders and files.
pub fn differences(one: &Path, other: &Path, except: &[&str]) -> io::Result<Vec<Difference>> {
    let (here, there) = (files(one, except)?, files(other, except)?);
    let mut found = Vec::new();
    for file in here.union(&there) {
        if !(here.contains(file) && there.contains(file)) {
            found.push(Difference::OnlyInOne(file.clone()));
        } else if let Some(at) = first_byte(&one.join(file), &other.join(file))? {
            let file = file.clone();
            found.push(Difference::Content { file, at });
        }
    }
    Ok(found)
}

fn files(folder: &Path, except: &[&str]) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = Vec::from([PathBuf::new()]);
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if !except.iter().any(|name| path == Path::new(name)) {
                found.insert(path);
            }
        }
    }
    Ok(found)
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
    fn all_differences_are_named_and_excepted_files_are_not_looked_at() {
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
        assert_eq!(line, "inner/z differs from byte 3 on");
    }
}
