//! A command that pillion runs, and that is to notice as little of it as can be. docs/process.md
//! has the manner.

mod child;
mod inherited;
mod job;
mod signals;
mod witness;

use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;

pub use inherited::Inherited;
pub use signals::Signals;

use crate::print::say_line;

/// Says why a command could not be started; the exit code that shells have for it.
pub fn cannot_run(program: &str, command: &OsStr, error: &io::Error) -> ExitCode {
    let name = command.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        say_line!("{program}: {name}: command not found");
        return ExitCode::from(127);
    }
    say_line!("{program}: {name}: {error}");
    ExitCode::from(126)
}
