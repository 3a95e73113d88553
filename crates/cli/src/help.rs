//! The command line, read; and the help that is printed in its place.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::print::say_line;

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
