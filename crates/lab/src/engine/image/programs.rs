//! Programs of the image: their loadable parts, their libraries, and the host's tools by name.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

use super::{Entry, Image};
use crate::engine::EngineError;

impl Image {
    /// Adds an executable file of the host to `/bin` under its own name, with the libraries it
    /// needs. The caller adds a script's interpreter. Returns the path inside the image.
    ///
    /// # Errors
    /// [`EngineError::File`] if the program cannot be read or executed, a library is missing, or
    /// two programs need different libraries with the same name.
    pub fn add_program(&mut self, program: &Path) -> Result<String, EngineError> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        self.add_program_as(program, &name)
    }

    fn add_program_as(&mut self, program: &Path, name: &str) -> Result<String, EngineError> {
        let failed = |reason: String| EngineError::File {
            path: program.to_owned(),
            reason,
        };
        if !is_executable(program) {
            return Err(failed("not an executable file".to_owned()));
        }
        let file = fs::read(program).map_err(file_error(program))?;
        if !file.starts_with(b"#!") {
            let loader = elf_interpreter(&file).map_err(|error| failed(error.to_string()))?;
            if let Some(loader) = loader.filter(|_| self.root.is_none()) {
                self.add_libraries(program, &loader)?;
            }
        }
        let path = format!("/bin/{name}");
        self.put(&path, Entry::Program(loaded_part(file).into()));
        Ok(path)
    }

    /// Adds a program's libraries as listed by its own loader, because only the loader knows the
    /// search paths.
    fn add_libraries(&mut self, program: &Path, loader: &str) -> Result<(), EngineError> {
        let failed = |reason: String| EngineError::File {
            path: program.to_owned(),
            reason,
        };
        let output = Command::new(loader)
            .arg("--list")
            .arg(program)
            .stdin(Stdio::null())
            .output()
            .map_err(file_error(Path::new(loader)))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(failed(reason.trim().to_owned()));
        }
        self.add_library(Path::new(loader), loader)?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((name, matches)) = line.trim().split_once(" => ") else {
                continue;
            };
            let file = matches.split(" (0x").next().unwrap_or(matches);
            if file == "not found" {
                return Err(failed(format!("library {name} is missing")));
            }
            let path = if name.starts_with('/') {
                name.to_owned()
            } else {
                format!("/lib/{name}")
            };
            self.add_library(Path::new(file), &path)?;
        }
        Ok(())
    }

    /// Adds the libraries of all packages below `root`, because their loader cannot run here.
    pub(super) fn add_all_libraries(&mut self, root: &Path) -> Result<(), EngineError> {
        for folder in ["lib", "usr/lib"].map(|folder| root.join(folder)) {
            let below = fs::read_dir(&folder).into_iter().flatten().flatten();
            let folders = below.map(|entry| entry.path()).chain([folder]);
            let files = folders.filter_map(|folder| fs::read_dir(folder).ok());
            for file in files.flatten().flatten().map(|entry| entry.path()) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                if file.is_file() && name.contains(".so") {
                    self.add_library(&file, &format!("/lib/{name}"))?;
                }
            }
        }
        Ok(())
    }

    fn add_library(&mut self, file: &Path, path: &str) -> Result<(), EngineError> {
        let content = fs::read(file).map_err(file_error(file))?;
        let entry = Entry::Program(loaded_part(content).into());
        let path = self.resolve(path);
        if self
            .entries
            .get(&path)
            .is_some_and(|existing| *existing != entry)
        {
            return Err(EngineError::File {
                path: file.to_owned(),
                reason: "another program needs a different library of the same name".to_owned(),
            });
        }
        self.put(&path, entry);
        Ok(())
    }
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    let path = path.to_owned();
    move |error| EngineError::File {
        path,
        reason: error.to_string(),
    }
}

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|matches| matches.is_file() && matches.permissions().mode() & 0o111 != 0)
}

// The parts of an executable file that a kernel and a loader read.

/// Returns an executable file's loader; `None` if it needs none.
fn elf_interpreter(file: &[u8]) -> object::Result<Option<String>> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        if let Some(path) = segment.interpreter(endian, file)? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(None)
}

/// Returns the part of the file that a loader maps. Drops the sections after it, which are for
/// debuggers and often most of the file. Returns the whole file if other data follows the linker's
/// output.
fn loaded_part(file: Vec<u8>) -> Vec<u8> {
    match loaded_size(&file) {
        Ok(Some(size)) => without_sections(file, size),
        _ => file,
    }
}

fn loaded_size(file: &[u8]) -> object::Result<Option<usize>> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let sections_end = header.e_shoff(endian)
        + u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
    if sections_end != file.len() as u64 {
        return Ok(None);
    }
    let ends = header.program_headers(endian, file)?.iter().map(|segment| {
        let (offset, size) = segment.file_range(endian);
        offset.saturating_add(size)
    });
    let end = ends.max().and_then(|end| usize::try_from(end).ok());
    Ok(end.filter(|end| *end <= file.len()))
}

/// Byte ranges of the 64-bit header's fields about sections: offset; number and index of names.
const SECTION_FIELDS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];

fn without_sections(mut file: Vec<u8>, size: usize) -> Vec<u8> {
    file.truncate(size);
    for field in SECTION_FIELDS {
        if let Some(bytes) = file.get_mut(field) {
            bytes.fill(0);
        }
    }
    file
}

// Tools of the host, found by name.

/// A program of the host with alternative names, and its Debian package.
pub(super) struct Tool {
    /// The tool's name inside the image.
    name: &'static str,
    /// Names to look for on the host, in order of preference.
    files: &'static [&'static str],
    package: &'static str,
}

/// Tools needed to set up and observe a testbed.
pub(super) const REQUIRED_TOOLS: [Tool; 4] = [
    // As `sh`, a busybox would prefer its own `ip` and `tc`.
    Tool {
        name: "sh",
        files: &["dash", "bash", "sh"],
        package: "dash",
    },
    Tool {
        name: "ip",
        files: &["ip"],
        package: "iproute2",
    },
    Tool {
        name: "tc",
        files: &["tc"],
        package: "iproute2",
    },
    Tool {
        name: "tcpdump",
        files: &["tcpdump"],
        package: "tcpdump",
    },
];

/// Folders of system tools, which some hosts leave out of the users' PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds an executable file in PATH, as a shell does, and then in the folders of system tools.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|file| is_executable(file));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

impl Image {
    fn find_tool(&self, name: &str) -> Option<PathBuf> {
        let Some(root) = &self.root else {
            return find_program(name);
        };
        let mut files = ["bin", "sbin", "usr/bin", "usr/sbin"]
            .iter()
            .map(|folder| root.join(folder).join(name));
        files.find(|file| is_executable(file))
    }

    /// Adds programs of the host, by name or path, to `/bin`.
    ///
    /// # Errors
    /// [`EngineError::MissingTools`] with all missing names; the errors of [`Image::add_program`].
    pub fn add_programs(&mut self, names: &[String]) -> Result<(), EngineError> {
        let matches: Vec<_> = names
            .iter()
            .map(|name| (name, self.find_tool(name)))
            .collect();
        let missing = matches.iter().filter(|(_, file)| file.is_none());
        let missing: Vec<_> = missing.map(|(name, _)| name.as_str()).collect();
        if !missing.is_empty() {
            return Err(EngineError::MissingTools(missing.join(", ")));
        }
        for file in matches.into_iter().filter_map(|(_, file)| file) {
            self.add_program(&file)?;
        }
        Ok(())
    }

    pub(super) fn add_tools(&mut self, tools: &[Tool]) -> Result<(), EngineError> {
        let mut missing = Vec::new();
        for tool in tools {
            match tool.files.iter().find_map(|file| self.find_tool(file)) {
                Some(file) => {
                    self.add_program_as(&file, tool.name)?;
                }
                None => missing.push(format!("{} (package {})", tool.name, tool.package)),
            }
        }
        if missing.is_empty() {
            Ok(())
        } else {
            Err(EngineError::MissingTools(missing.join(", ")))
        }
    }

    /// Adds the delay tables that `tc` reads for netem, if the host has them. Their folder is
    /// compiled into `tc` and differs between distributions.
    pub(super) fn add_distributions(&mut self) -> Result<(), EngineError> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let multiarch = fs::read_dir(root.join("usr/lib"))
            .into_iter()
            .flatten()
            .flatten();
        let folders = ["lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib"];
        let folders = folders.map(|folder| root.join(folder)).into_iter();
        let folders = folders.chain(multiarch.map(|entry| entry.path()));
        let files = folders.filter_map(|folder| fs::read_dir(folder.join("tc")).ok());
        for file in files.flatten().flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|kind| kind == "dist") {
                let content = fs::read(&file).map_err(file_error(&file))?;
                let path = file.strip_prefix(&root).unwrap_or(&file);
                let path = format!("/{}", path.display());
                self.put(&path, Entry::File(content.into()));
            }
        }
        Ok(())
    }
}
