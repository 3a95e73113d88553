//! Command line: parsing, help, manual pages and completions.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use clap_complete::Shell;

use crate::print::print;

/// Minimum columns of help outside a terminal.
const MIN_COLUMNS: usize = 60;

/// Parses the command line.
///
/// # Errors
/// A mistake, or the requested help or version.
pub fn parse<C: CommandFactory + FromArgMatches>() -> Result<C, clap::Error> {
    let mut command = C::command();
    if let Some(width) = width() {
        command = command.term_width(width);
    }
    C::from_arg_matches(&command.try_get_matches()?)
}

/// Returns 60 if `COLUMNS` is smaller and standard output is not a terminal; otherwise `None`.
fn width() -> Option<usize> {
    let columns: usize = env::var("COLUMNS").ok()?.parse().ok()?;
    let is_too_narrow = columns < MIN_COLUMNS && !io::stdout().is_terminal();
    is_too_narrow.then_some(MIN_COLUMNS)
}

/// Prints help, or the mistake in the command line, and returns the exit code.
pub fn print_parse_error(refusal: &clap::Error) -> ExitCode {
    let printed = refusal.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if !refusal.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            log::error!("write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(refusal.exit_code() as u8),
    }
}

// Manual pages and completions.

/// Write the manual pages to a directory
#[derive(clap::Args)]
pub struct ManArgs {
    /// The directory, which is created if necessary
    folder: std::path::PathBuf,
}

impl ManArgs {
    /// Writes the pages of a program, and `others` (file name and text).
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
