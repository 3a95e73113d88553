//! Exit codes: 1 when something failed, 2 for bad input, 3 when the work was done and something is to
//! be known of it: of what is read, that it is damaged and the result therefore incomplete; of
//! `status`, that nothing is covered. `run` adds the shells' own.

use std::error::Error;
use std::process::ExitCode;

use pillion_settings::BadInput;

use crate::print::say;

/// The work was done, on what could be read of its input.
pub const INCOMPLETE: u8 = 3;

/// All is well, and no connection is covered.
pub const COVERS_NOTHING: u8 = 3;

/// Prints an error in one line and gives its exit code.
pub fn explain(error: &anyhow::Error) -> ExitCode {
    say(&format!("pillion: {}", one_line(error)));
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
    use pillion_bundler::Error as Bundler;
    use pillion_lab::Error as Lab;
    use pillion_lab::engine::EngineError as Engine;
    use pillion_trace::input::InputError;
    use pillion_traffic::{ReceiveError, SendError};
    use pillion_trial::RecordError;
    cause.is::<BadInput>()
        || matches!(
            cause.downcast_ref(),
            Some(pillion_queue::Error::UnknownDevice { .. })
        )
        || matches!(
            cause.downcast_ref(),
            Some(
                Bundler::UnknownDevice { .. }
                    | Bundler::NoDevice
                    | Bundler::TooManyRules { .. }
                    | Bundler::UnknownNamespace { .. }
                    | Bundler::NotANamespace { .. }
            )
        )
        || matches!(
            cause.downcast_ref(),
            Some(
                Lab::Contradictions(_)
                    | Lab::Traffic(_)
                    | Lab::Lacks { .. }
                    | Lab::NotStored { .. }
                    | Lab::Sysctl { .. }
            )
        )
        || matches!(
            cause.downcast_ref(),
            Some(Engine::NoKernel(_) | Engine::File { .. } | Engine::MissingTools(_))
        )
        || matches!(
            cause.downcast_ref(),
            Some(SendError::Config(_) | SendError::Congestion { .. })
        )
        || matches!(
            cause.downcast_ref(),
            Some(ReceiveError::NoStreams | ReceiveError::Manner(_))
        )
        || matches!(
            cause.downcast_ref(),
            Some(
                RecordError::Foreign { .. }
                    | RecordError::InUse { .. }
                    | RecordError::OtherTrial { .. }
            )
        )
        || cause.is::<InputError>()
}
