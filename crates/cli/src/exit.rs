//! Exit codes: 1 when something failed, 2 for bad input, 3 when the work was done and something is to
//! be known of it: of what is read, that it is damaged and the result therefore incomplete; of
//! `status`, that nothing is covered. `run` adds the shells' own.

use std::error::Error;
use std::process::ExitCode;

use crate::settings::BadInput;

use crate::print::say_line;

/// The work was done, on what could be read of its input.
pub const INCOMPLETE: u8 = 3;

/// All is well, and no connection is covered.
pub const COVERS_NOTHING: u8 = 3;

/// Prints an error in one line and returns its exit code: 2 if it is [`BadInput`], or if
/// `is_bad_input` holds for one of its causes.
pub fn explain(
    program: &str,
    error: &anyhow::Error,
    is_bad_input: fn(&(dyn Error + 'static)) -> bool,
) -> ExitCode {
    say_line!("{program}: {}", one_line(error));
    if error
        .chain()
        .any(|cause| cause.is::<BadInput>() || is_bad_input(cause))
    {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// An error with its causes.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors state their cause themselves.
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line = line + colon + &cause;
        }
    }
    line
}

/// True if the cause is an `E` for which this holds.
pub fn is<E: Error + 'static>(cause: &(dyn Error + 'static), holds: fn(&E) -> bool) -> bool {
    cause.downcast_ref().is_some_and(holds)
}
