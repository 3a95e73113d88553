//! Exit codes: 1 when something failed, 2 for bad input, 3 when the work was done and something is to
//! be known of it: of what is read, that it is damaged and the result therefore incomplete; of
//! `status`, that nothing is covered. `run` adds the shells' own.

use std::error::Error;
use std::process::ExitCode;

use pillion_lab::engine::EngineError;
use pillion_settings::BadInput;
use pillion_trace::input::InputError;
use pillion_traffic::{ReceiveError, SendError};
use pillion_trial::RecordError;

use crate::print::say_line;

/// The work was done, on what could be read of its input.
pub const INCOMPLETE: u8 = 3;

/// All is well, and no connection is covered.
pub const COVERS_NOTHING: u8 = 3;

/// Prints an error in one line and gives its exit code.
pub fn explain(error: &anyhow::Error) -> ExitCode {
    say_line!("pillion: {}", one_line(error));
    if error.chain().any(is_bad_input) {
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

fn is_bad_input(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<BadInput>()
        || cause.is::<InputError>()
        || says(cause, pillion_bundler::Error::is_bad_input)
        || says(cause, pillion_lab::Error::is_bad_input)
        || says(cause, EngineError::is_bad_input)
        || says(cause, pillion_queue::Error::is_bad_input)
        || says(cause, SendError::is_bad_input)
        || says(cause, ReceiveError::is_bad_input)
        || says(cause, RecordError::is_bad_input)
}

/// Whether the cause is such an error, and says so of itself.
fn says<E: Error + 'static>(cause: &(dyn Error + 'static), is_bad_input: fn(&E) -> bool) -> bool {
    cause.downcast_ref().is_some_and(is_bad_input)
}
