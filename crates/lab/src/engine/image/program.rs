//! Programs, and what they need in order to run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Entry, Image, elf};
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

    pub(super) fn add_program_as(
        &mut self,
        program: &Path,
        name: &str,
    ) -> Result<String, EngineError> {
        let failed = |reason: String| EngineError::File {
            path: program.to_owned(),
            reason,
        };
        if !is_executable(program) {
            return Err(failed("not an executable file".to_owned()));
        }
        let file = fs::read(program).map_err(unusable(program))?;
        if !file.starts_with(b"#!") {
            let loader = elf::interpreter(&file).map_err(|error| failed(error.to_string()))?;
            if let Some(loader) = loader {
                self.add_libraries(program, &loader)?;
            }
        }
        let path = format!("/bin/{name}");
        self.put(&path, Entry::Program(elf::loaded(file).into()));
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
        let entry = Entry::Program(elf::loaded(content).into());
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
