//! Manual pages and completions, from the command line itself.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::print::print;

/// Write the manual pages into a folder
#[derive(clap::Args)]
pub struct ManArgs {
    /// The folder, which is created if necessary
    folder: std::path::PathBuf,
}

impl ManArgs {
    /// Writes the pages of a program, and others that are given as a file name and its text.
    ///
    /// # Errors
    /// If a page cannot be written.
    pub fn execute<C: CommandFactory>(self, others: &[(&str, String)]) -> Result<ExitCode> {
        write_pages::<C>(&self.folder, others)
            .with_context(|| format!("write manual pages to {}", self.folder.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write_pages<C: CommandFactory>(folder: &Path, others: &[(&str, String)]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(C::command(), folder)?;
    for (name, page) in others {
        fs::write(folder.join(name), page)?;
    }
    Ok(())
}

/// Print completions for a shell
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the script.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn execute<C: CommandFactory>(self) -> Result<ExitCode> {
        let mut command = C::command();
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
