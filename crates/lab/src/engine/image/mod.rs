//! The image: the files that the kernel finds as its root file system.

mod cpio;
mod elf;
mod program;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

pub use tools::find_program;

use super::EngineError;
use super::job::{JOB_FILE, Job, RESULTS};

/// A root file system: programs with the libraries they need, the host's tools, and files.
/// The same contents give the same image, bit for bit.
#[derive(Debug, Clone)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
}

/// What is at a path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder,
    Link(String),
    File(Arc<[u8]>),
    Program(Arc<[u8]>),
}

/// Links in the image: every place where a loader looks for libraries, or a script for programs, is
/// one place.
const LINKS: [(&str, &str); 9] = [
    ("/lib64", "lib"),
    ("/lib/x86_64-linux-gnu", "."),
    ("/sbin", "bin"),
    ("/usr/bin", "../bin"),
    ("/usr/sbin", "../bin"),
    ("/usr/lib", "../lib"),
    ("/usr/lib64", "../lib"),
    ("/usr/local", "."),
    ("/var/tmp", "../tmp"),
];

const FOLDERS: [&str; 11] = [
    "/bin", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sys", "/tmp", "/usr", "/var",
];

/// Files in every image, by path: what programs ask for before they do anything else.
const FILES: [(&str, &str); 4] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\n",
    ),
];

impl Image {
    /// An image that boots: `init` is an executable file that calls [`super::run_as_init`], or does
    /// a first process's work itself, when it is [`super::is_init`]; beside it there are `sh`,
    /// `ip`, `tc` and `tcpdump`.
    ///
    /// # Errors
    /// [`EngineError::File`], [`EngineError::MissingTools`].
    pub fn new(init: &Path) -> Result<Self, EngineError> {
        let mut image = Self {
            entries: BTreeMap::new(),
        };
        for folder in FOLDERS {
            image.entries.insert(folder.to_owned(), Entry::Folder);
        }
        image.entries.insert(RESULTS.to_owned(), Entry::Folder);
        for (path, target) in LINKS {
            image
                .entries
                .insert(path.to_owned(), Entry::Link(target.to_owned()));
        }
        for (path, text) in FILES {
            image.put(path, Entry::File(text.as_bytes().into()));
        }
        let init = image.add_program(init)?;
        image.put(
            "/init",
            Entry::Link(init.trim_start_matches('/').to_owned()),
        );
        image.add_tools(&tools::NEEDED)?;
        image.add_distributions()?;
        Ok(image)
    }

    /// Puts a file's content at a path of the image; it can be executed if the host's can.
    ///
    /// # Errors
    /// [`EngineError::File`] where it cannot be read, or the path cannot be.
    pub fn add_file(&mut self, source: &Path, path: &str) -> Result<(), EngineError> {
        let content = fs::read(source).map_err(program::unusable(source))?;
        let entry = if program::is_executable(source) {
            Entry::Program(content.into())
        } else {
            Entry::File(content.into())
        };
        let path = checked(path).map_err(|reason| EngineError::File {
            path: PathBuf::from(path),
            reason: reason.to_owned(),
        })?;
        self.put(&path, entry);
        Ok(())
    }

    /// Puts a text at a path of the image.
    pub(super) fn add_text(&mut self, path: &str, text: &str) {
        self.put(path, Entry::File(text.as_bytes().into()));
    }

    /// Puts the job, which says what is to be run, into the image.
    pub fn set_job(&mut self, job: &Job) {
        let text = serde_json::to_vec(job).unwrap_or_default();
        self.put(JOB_FILE, Entry::File(text.into()));
    }

    /// Writes the image as an archive.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        cpio::write(out, self.entries.iter())
    }

    /// Puts an entry at a path of the image, and the folders above it.
    fn put(&mut self, path: &str, entry: Entry) {
        let path = self.resolve(path);
        for (at, _) in path.match_indices('/').skip(1) {
            let folder = path[..at].to_owned();
            self.entries.entry(folder).or_insert(Entry::Folder);
        }
        self.entries.insert(path, entry);
    }

    /// Follows the image's links between folders: an archive cannot be unpacked through them.
    fn resolve(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (link, target) in LINKS {
            let Some(rest) = path.strip_prefix(link).filter(|rest| rest.starts_with('/')) else {
                continue;
            };
            let parent = link.rsplit_once('/').map_or("", |(parent, _)| parent);
            path = match target.strip_prefix("../") {
                Some(target) => format!("/{target}{rest}"),
                None if target == "." => format!("{parent}{rest}"),
                None => format!("{parent}/{target}{rest}"),
            };
            return self.resolve(&path);
        }
        path
    }
}

/// The path, if it is an absolute one without `.` and `..`.
fn checked(path: &str) -> Result<String, &'static str> {
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path.parent().is_none() {
        return Err("not an absolute path of a file for the image");
    }
    let parts: PathBuf = path.components().collect();
    parts
        .into_os_string()
        .into_string()
        .map_err(|_| "not UTF-8")
}
