//! Programs of the image: the parts that a kernel loads, their libraries, and the host's tools by name.

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
    /// Puts an executable file of the host into `/bin`, under its own name, with the libraries
    /// it needs; a script's interpreter is the caller's to add. Returns its path inside.
    ///
    /// # Errors
    /// [`EngineError::File`] where it cannot be read or executed, a library is missing, or two
    /// programs need different libraries of one name.
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
        let file = fs::read(program).map_err(unusable(program))?;
        if !file.starts_with(b"#!") {
            let loader = elf_interpreter(&file).map_err(|error| failed(error.to_string()))?;
            if let Some(loader) = loader {
                self.add_libraries(program, &loader)?;
            }
        }
        let path = format!("/bin/{name}");
        self.put(&path, Entry::Program(loaded_part(file).into()));
        Ok(path)
    }

    /// Adds the libraries of a program, as its own loader names them: it alone knows where it
    /// looks.
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
            .map_err(unusable(Path::new(loader)))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(failed(reason.trim().to_owned()));
        }
        self.add_library(Path::new(loader), loader)?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((name, found)) = line.trim().split_once(" => ") else {
                continue;
            };
            let file = found.split(" (0x").next().unwrap_or(found);
            if file == "not found" {
                return Err(failed(format!("its library {name} is missing")));
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

    fn add_library(&mut self, file: &Path, path: &str) -> Result<(), EngineError> {
        let content = fs::read(file).map_err(unusable(file))?;
        let entry = Entry::Program(loaded_part(content).into());
        let path = self.resolve(path);
        if self.entries.get(&path).is_some_and(|there| *there != entry) {
            return Err(EngineError::File {
                path: file.to_owned(),
                reason: "another program needs a different library of the same name".to_owned(),
            });
        }
        self.put(&path, entry);
        Ok(())
    }
}

pub(super) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    let path = path.to_owned();
    move |error| EngineError::File {
        path,
        reason: error.to_string(),
    }
}

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

// The parts of an executable file that a kernel and a loader read.

/// An executable file's loader, `None` where it needs none.
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

/// The file as far as a loader maps it: without the sections that follow, which are for
/// debuggers and often most of it. Whole where the linker's output is not all that there is.
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

/// The fields of a 64-bit header that say where the sections are, by their bytes: offset; number
/// and index of names.
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

// The host's tools by name.

/// A program of the host by one of several names, and the Debian package that has it.
pub(super) struct Tool {
    /// What the tool is called inside.
    name: &'static str,
    /// Where the tool is looked for on the host, the best first.
    files: &'static [&'static str],
    package: &'static str,
}

/// The tools that setting up and watching a testbed takes.
pub(super) const NEEDED: [Tool; 4] = [
    // A busybox that is `sh` would prefer its own `ip` and `tc`.
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

/// Folders of system tools, on hosts whose users do not have them in PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds an executable file as a shell would, and where system tools are.
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
    /// Puts programs of the host, found by name or given by path, into `/bin`.
    ///
    /// # Errors
    /// [`EngineError::MissingTools`] that names all that are not there; as
    /// [`Image::add_program`].
    pub fn add_programs(&mut self, names: &[String]) -> Result<(), EngineError> {
        let found: Vec<_> = names
            .iter()
            .map(|name| (name, find_program(name)))
            .collect();
        let missing = found.iter().filter(|(_, file)| file.is_none());
        let missing: Vec<_> = missing.map(|(name, _)| name.as_str()).collect();
        if !missing.is_empty() {
            return Err(EngineError::MissingTools(missing.join(", ")));
        }
        for file in found.into_iter().filter_map(|(_, file)| file) {
            self.add_program(&file)?;
        }
        Ok(())
    }

    pub(super) fn add_tools(&mut self, tools: &[Tool]) -> Result<(), EngineError> {
        let mut missing = Vec::new();
        for tool in tools {
            match tool.files.iter().find_map(|file| find_program(file)) {
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

    /// The tables of delays that `tc` reads for netem, where the host has them: in a folder that
    /// was built into it, and differs from one distribution to the next.
    pub(super) fn add_distributions(&mut self) -> Result<(), EngineError> {
        let multiarch = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let folders = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
        let folders = folders.map(PathBuf::from).into_iter();
        let folders = folders.chain(multiarch.map(|entry| entry.path()));
        let files = folders.filter_map(|folder| fs::read_dir(folder.join("tc")).ok());
        for file in files.flatten().flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|kind| kind == "dist") {
                let content = fs::read(&file).map_err(unusable(&file))?;
                self.put(&file.to_string_lossy(), Entry::File(content.into()));
            }
        }
        Ok(())
    }
}
