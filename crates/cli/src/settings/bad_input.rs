/// A mistake in what the user asked for, rather than a failure to do it.
///
/// The text says what is wrong and what to do; of a file, in a line for each mistake,
/// `FILE:LINE:COLUMN: what; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

impl From<&str> for BadInput {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
