//! CSV lists with a header and one entry per line, and the list of an application's writes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use crate::traffic::wire::MAX_SIZE;

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file's name.
        file: String,
        /// The system's error.
        error: String,
    },
    /// A line is invalid.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file's name.
        file: String,
        /// Line number from 1.
        line: usize,
        /// The reason and the remedy.
        what: String,
    },
}

/// Maximum size of a list in mebibytes; ten million entries need less.
const MAX_MEBIBYTES: u64 = 256;

fn read_limited(file: impl Read) -> io::Result<String> {
    let max_bytes = MAX_MEBIBYTES << 20;
    let mut text = String::new();
    if file.take(max_bytes + 1).read_to_string(&mut text)? as u64 <= max_bytes {
        return Ok(text);
    }
    let what = format!("list larger than {MAX_MEBIBYTES} MiB: shorten it");
    Err(io::Error::new(ErrorKind::FileTooLarge, what))
}

/// The text of a file, and its name for messages.
pub(crate) struct CsvList {
    file: String,
    text: String,
}

impl CsvList {
    pub fn read(file: &Path) -> Result<Self, ListError> {
        let name = file.display().to_string();
        match File::open(file).and_then(read_limited) {
            Ok(text) => Ok(Self { file: name, text }),
            Err(error) => Err(ListError::File {
                file: name,
                error: error.to_string(),
            }),
        }
    }

    /// Returns the first line.
    pub fn header(&self) -> Option<&str> {
        self.text.lines().next().map(str::trim)
    }

    /// Returns all lines with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Returns the other non-empty lines with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines().skip(1);
        lines.filter(|(_, line)| !line.trim().is_empty())
    }

    pub fn wrong(&self, line: usize, what: impl Into<String>) -> ListError {
        ListError::Line {
            file: self.file.clone(),
            line,
            what: what.into(),
        }
    }
}

// Replay of an application's writes.

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Time since the previous write; for the first one, since the start of the stream.
    pub gap: Duration,
    /// Bytes of the message, 1 to 1 MiB.
    pub size: u32,
}

/// The header of a CSV list of writes.
pub const WRITES_HEADING: &str = "gap_ms,size";

/// Reads a CSV list of writes: the header [`WRITES_HEADING`], then one write per line with the time
/// since the previous one in milliseconds and the bytes.
///
/// # Errors
/// The invalid line, or the system's error.
pub fn read_writes(file: &Path) -> Result<Vec<Write>, ListError> {
    let list = CsvList::read(file)?;
    if list.header() != Some(WRITES_HEADING) {
        return Err(list.wrong(1, format!("expected the header `{WRITES_HEADING}`")));
    }
    list.entries()
        .map(|(number, line)| {
            let (gap, size) = line.split_once(',').unwrap_or((line, ""));
            let gap = gap
                .trim()
                .parse()
                .ok()
                .and_then(|gap: f64| Duration::try_from_secs_f64(gap / 1e3).ok());
            let size = size
                .trim()
                .parse()
                .ok()
                .filter(|size| (1..=MAX_SIZE).contains(size));
            match (gap, size) {
                (Some(gap), Some(size)) => Ok(Write { gap, size }),
                (None, _) => Err(list.wrong(number, "invalid gap: expected milliseconds from 0")),
                (_, None) => {
                    let what = format!("invalid size: expected bytes from 1 to {MAX_SIZE}");
                    Err(list.wrong(number, what))
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn endless_list_is_rejected_at_size_limit() {
        let error = read_limited(io::repeat(b'0')).unwrap_err().to_string();
        assert_eq!(error, "list larger than 256 MiB: shorten it");
    }

    #[test]
    fn write_list_errors_name_line() {
        let file = std::env::temp_dir().join(format!("pillion-writes-{}.csv", std::process::id()));
        let read = |text: &str| {
            fs::write(&file, text).unwrap();
            read_writes(&file)
        };
        let (gap, size) = (Duration::from_micros(12_500), 120);
        assert_eq!(
            read("gap_ms,size\n12.5, 120\n").unwrap(),
            [Write { gap, size }]
        );
        for (text, expected) in [
            ("", ":1: expected the header"),
            ("gap_ms,size\nx,1\n", ":2: invalid gap"),
            ("gap_ms,size\n-1,1\n", ":2: invalid gap"),
            ("gap_ms,size\n1,1\n\n1\n", ":4: invalid size"),
            ("gap_ms,size\n1,0\n", ":2: invalid size"),
            ("gap_ms,size\n1,1048577\n", "from 1 to 1048576"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        fs::remove_file(&file).unwrap();
    }
}
