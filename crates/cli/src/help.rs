//! The command line: its parsing, its help, manual pages and completions.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use clap_complete::Shell;

use crate::print::{print, say_line};

/// Columns that help needs, where a terminal has not said that it has fewer.
const NARROWEST: usize = 60;

/// Parses the command line; help that was asked for is an error as well.
///
/// # Errors
/// Help, the version, or a mistake.
pub fn parse<C: CommandFactory + FromArgMatches>() -> Result<C, clap::Error> {
    let mut command = C::command();
    if let Some(width) = width() {
        command = command.term_width(width);
    }
    C::from_arg_matches(&command.try_get_matches()?)
}

/// 60 if `COLUMNS` is smaller and standard output is no terminal; otherwise `None`.
fn width() -> Option<usize> {
    let columns: usize = env::var("COLUMNS").ok()?.parse().ok()?;
    let is_of_no_use = columns < NARROWEST && !io::stdout().is_terminal();
    is_of_no_use.then_some(NARROWEST)
}

/// Prints help, or what is wrong with the command line, and gives the exit code.
pub fn explain(program: &str, refusal: &clap::Error) -> ExitCode {
    let printed = refusal.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if !refusal.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            say_line!("{program}: write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(refusal.exit_code() as u8),
    }
}

// Manual pages and completions, from the command line itself.

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
