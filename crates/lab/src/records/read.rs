use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::records::is_compressed;
use crate::records::lines::Lines;

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system's reason, or that of the decompression.
    #[error(transparent)]
    Io(io::Error),
    /// The compressed file ends before it is whole.
    #[error("cut off; the records before that are whole")]
    Cut,
    /// A line is not what it should be.
    #[error("line {line}: {what}")]
    Line {
        /// The line, counted from 1; the heading is the first one.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// Reads a file of records, one at a time.
///
/// # Errors
/// [`ReadError`] where there is no such file, or its heading cannot be read; each record may be an error as well, and is then
/// the last one.
pub fn read<T: DeserializeOwned>(
    path: &Path,
) -> Result<impl Iterator<Item = Result<T, ReadError>> + use<T>, ReadError> {
    let file = File::open(path).map_err(ReadError::Io)?;
    let from: Box<dyn Read> = match is_compressed(path) {
        true => Box::new(zstd::Decoder::new(file).map_err(ReadError::Io)?),
        false => Box::new(file),
    };
    let mut reader = csv::Reader::from_reader(Lines::of(from));
    // Asked for a record at once, it would take a heading that cannot be read for no records.
    reader.headers()?;
    let mut records = reader.into_deserialize();
    let mut ended = false;
    Ok(std::iter::from_fn(move || {
        let record: Result<T, csv::Error> = records.next().filter(|_| !ended)?;
        ended = record.is_err();
        Some(record.map_err(ReadError::from))
    }))
}

impl From<csv::Error> for ReadError {
    fn from(error: csv::Error) -> Self {
        let line = error.position().map_or(1, csv::Position::line);
        let what = match error.kind() {
            csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
            _ => error.to_string(),
        };
        match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Cut,
            csv::ErrorKind::Io(error) => Self::Io(error),
            _ => Self::Line { line, what },
        }
    }
}
