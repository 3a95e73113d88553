//! The image: the files of the kernel's root file system.

mod programs;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::EngineError;
use super::protocol::{JOB_FILE, Job, RESULTS};
use programs::{file_error, is_executable};

pub use programs::find_program;

/// A root file system: programs with their libraries, tools of the host, and files. Equal contents
/// give an identical image, bit for bit.
#[derive(Debug, Clone)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
    /// Root folder of the tools; `None` for this host's.
    root: Option<PathBuf>,
}

/// An entry at a path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder,
    Link(String),
    File(Arc<[u8]>),
    Program(Arc<[u8]>),
}

/// Symbolic links of the image. They merge all paths where a loader looks for libraries, or a
/// script for programs.
const SYMLINKS: [(&str, &str); 9] = [
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

/// Files in every image, by path, that programs read at their start.
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
    /// Creates an image that boots. `init` is an executable file that calls [`super::run_as_init`],
    /// or that works as first process if [`super::is_init`] is true. The image also contains `sh`,
    /// `ip`, `tc` and `tcpdump`.
    ///
    /// # Errors
    /// [`EngineError::File`], [`EngineError::MissingTools`].
    pub fn new(init: &Path) -> Result<Self, EngineError> {
        Self::with_tools(init, None)
    }

    /// Creates an image for another processor. `init` and all added programs must be static; the
    /// tools and their libraries come from packages unpacked in `root`.
    ///
    /// # Errors
    /// As for [`Image::new`].
    pub fn foreign(init: &Path, root: &Path) -> Result<Self, EngineError> {
        let mut image = Self::with_tools(init, Some(root.to_owned()))?;
        image.add_all_libraries(root)?;
        Ok(image)
    }

    fn with_tools(init: &Path, root: Option<PathBuf>) -> Result<Self, EngineError> {
        let mut image = Self {
            entries: BTreeMap::new(),
            root,
        };
        for folder in FOLDERS {
            image.entries.insert(folder.to_owned(), Entry::Folder);
        }
        image.entries.insert(RESULTS.to_owned(), Entry::Folder);
        for (path, target) in SYMLINKS {
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
        image.add_tools(&programs::REQUIRED_TOOLS)?;
        image.add_distributions()?;
        Ok(image)
    }

    /// Adds a file at a path of the image; it is executable if the host's file is.
    ///
    /// # Errors
    /// [`EngineError::File`] if the file cannot be read or the path is invalid.
    pub fn add_file(&mut self, source: &Path, path: &str) -> Result<(), EngineError> {
        let content = fs::read(source).map_err(file_error(source))?;
        let entry = if is_executable(source) {
            Entry::Program(content.into())
        } else {
            Entry::File(content.into())
        };
        let path = validate_path(path).map_err(|reason| EngineError::File {
            path: PathBuf::from(path),
            reason: reason.to_owned(),
        })?;
        self.put(&path, entry);
        Ok(())
    }

    /// Adds a text file at a path of the image.
    pub(super) fn add_text(&mut self, path: &str, text: &str) {
        self.put(path, Entry::File(text.as_bytes().into()));
    }

    /// Adds the job, which names the program to run, to the image.
    pub fn set_job(&mut self, job: &Job) {
        let text = serde_json::to_vec(job).unwrap_or_default();
        self.put(JOB_FILE, Entry::File(text.into()));
    }

    /// Writes the image as a cpio archive.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_cpio(out, self.entries.iter())
    }

    /// Adds an entry at a path of the image, and the folders above it.
    fn put(&mut self, path: &str, entry: Entry) {
        let path = self.resolve(path);
        for (at, _) in path.match_indices('/').skip(1) {
            let folder = path[..at].to_owned();
            self.entries.entry(folder).or_insert(Entry::Folder);
        }
        self.entries.insert(path, entry);
    }

    /// Resolves the image's links between folders: an archive cannot be unpacked through them.
    fn resolve(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (link, target) in SYMLINKS {
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

/// Returns the path if it is absolute and has no `.` or `..` components.
fn validate_path(path: &str) -> Result<String, &'static str> {
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path.parent().is_none() {
        return Err("expected an absolute path of a file");
    }
    let parts: PathBuf = path.components().collect();
    parts
        .into_os_string()
        .into_string()
        .map_err(|_| "not UTF-8")
}

// The archive of a kernel's root file system: cpio, format `newc`
// (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel's source).

/// Returns the header before an entry's name: numbers of eight hexadecimal digits.
fn header(inode: usize, mode: u32, size: usize, name: &str) -> String {
    let name_size = name.len() + 1;
    let links = 1;
    let mut header = String::from("070701");
    let (user, group, time, device, checksum) = (0, 0, 0, 0, 0);
    for number in [inode, mode as usize, user, group, links, time, size] {
        header += &format!("{number:08x}");
    }
    for number in [device, device, device, device, name_size, checksum] {
        header += &format!("{number:08x}");
    }
    header
}

/// Writes one archive of the entries, in their order. Equal entries give equal bytes: the archive
/// contains no times, owners or inodes of the host.
fn write_cpio<'a>(
    out: &mut impl Write,
    entries: impl Iterator<Item = (&'a String, &'a Entry)>,
) -> io::Result<()> {
    let mut inode = 0;
    for (path, entry) in entries {
        inode += 1;
        let (mode, content) = match entry {
            Entry::Folder => (libc::S_IFDIR | 0o755, &[][..]),
            Entry::Link(target) => (libc::S_IFLNK | 0o777, target.as_bytes()),
            Entry::File(content) => (libc::S_IFREG | 0o644, &content[..]),
            Entry::Program(content) => (libc::S_IFREG | 0o755, &content[..]),
        };
        if u32::try_from(content.len()).is_err() {
            return Err(io::Error::other(format!("{path} is larger than 4 GiB")));
        }
        put(out, inode, mode, path.trim_start_matches('/'), content)?;
    }
    put(out, 0, 0, "TRAILER!!!", &[])
}

fn put(
    out: &mut impl Write,
    inode: usize,
    mode: u32,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    let header = header(inode, mode, content.len(), name);
    out.write_all(header.as_bytes())?;
    out.write_all(name.as_bytes())?;
    out.write_all(&[0])?;
    pad(out, header.len() + name.len() + 1)?;
    out.write_all(content)?;
    pad(out, content.len())
}

/// Pads with zeros: name and content each end at a multiple of four bytes.
fn pad(out: &mut impl Write, written: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn archive_matches_cpio_format_exactly() {
        let entries = BTreeMap::from([("/a".to_owned(), Entry::File(b"text\n".as_slice().into()))]);
        let mut archive = Vec::new();
        write_cpio(&mut archive, entries.iter()).unwrap();
        let zero = "00000000";
        let expected = [
            "070701",
            "00000001",
            "000081a4",
            zero,
            zero,
            "00000001",
            zero,
            "00000005",
            zero,
            zero,
            zero,
            zero,
            "00000002",
            zero,
            "a\0",
            "text\n\0\0\0",
            "070701",
            zero,
            zero,
            zero,
            zero,
            "00000001",
            zero,
            zero,
            zero,
            zero,
            zero,
            zero,
            "0000000b",
            zero,
            "TRAILER!!!\0\0\0\0",
        ];
        assert_eq!(String::from_utf8(archive).unwrap(), expected.concat());
    }
}
