//! Exit codes: 1 when something failed, 2 for bad input; `run` adds the shells' own.

use std::process::ExitCode;

/// A mistake in what the user asked for, rather than a failure to do it.
#[derive(Debug)]
pub struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Prints an error in one line and gives its exit code.
pub fn explain(error: &anyhow::Error) -> ExitCode {
    eprintln!("pillion: {error:#}");
    if is_bad_input(error) {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    use pillion_bundler::Error;
    error.chain().any(|cause| {
        cause.is::<BadInput>()
            || matches!(
                cause.downcast_ref(),
                Some(Error::UnknownDevice { .. } | Error::NoDevice)
            )
    })
}
