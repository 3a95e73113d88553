//! The host's own tools, by name.

use std::env;
use std::fs;
use std::path::PathBuf;

use super::{Entry, Image, program};
use crate::engine::EngineError;

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
        return Some(PathBuf::from(name)).filter(|file| program::is_executable(file));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| program::is_executable(file))
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
                let content = fs::read(&file).map_err(program::unusable(&file))?;
                self.put(&file.to_string_lossy(), Entry::File(content.into()));
            }
        }
        Ok(())
    }
}
