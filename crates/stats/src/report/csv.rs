//! Comma-separated values (RFC 4180).

/// A text as one field.
#[must_use]
pub fn field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
