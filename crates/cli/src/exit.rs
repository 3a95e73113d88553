//! Exit codes: 1 for a failure, 2 for invalid input. 3 means success with a reservation: damaged input
//! and therefore an incomplete result, or, for `status`, zero covered connections. `run` adds the
//! codes of shells.

use std::error::Error;
use std::process::ExitCode;

use crate::settings::BadInput;

/// Success, but the input was only partly readable.
pub const INCOMPLETE: u8 = 3;

/// Healthy, but no connection is covered.
pub const NO_CONNECTION: u8 = 3;

/// Logs an error in one line and returns its exit code: 2 if a cause is [`BadInput`] or `is_bad_input`
/// returns true for it, otherwise 1.
pub fn report_error(
    error: &anyhow::Error,
    is_bad_input: fn(&(dyn Error + 'static)) -> bool,
) -> ExitCode {
    log::error!("{}", one_line(error));
    if error
        .chain()
        .any(|cause| cause.is::<BadInput>() || is_bad_input(cause))
    {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// Formats an error with its causes in one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors include their cause.
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line = line + colon + &cause;
        }
    }
    line
}

/// Returns true if the cause is an `E` for which `predicate` returns true.
pub fn cause_matches<E: Error + 'static>(
    cause: &(dyn Error + 'static),
    predicate: fn(&E) -> bool,
) -> bool {
    cause.downcast_ref().is_some_and(predicate)
}
