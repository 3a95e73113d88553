//! Lists in CSV files: a heading, then an entry a line; and a list of an application's writes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use crate::traffic::wire::MAX_SIZE;

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The file cannot be.
    #[error("{file}: {error}")]
    File {
        /// The file's name.
        file: String,
        /// The system's answer.
        error: String,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and the remedy.
        what: String,
    },
}

/// Mebibytes that a list may have: ten million entries take less.
const MOST_MEBIBYTES: u64 = 256;

fn read_whole(file: impl Read) -> io::Result<String> {
    let most = MOST_MEBIBYTES << 20;
    let mut text = String::new();
    if file.take(most + 1).read_to_string(&mut text)? as u64 <= most {
        return Ok(text);
    }
    let what = format!("more than {MOST_MEBIBYTES} MiB; give a shorter list");
    Err(io::Error::new(ErrorKind::FileTooLarge, what))
}

/// A file, and its name for messages.
pub(crate) struct List {
    file: String,
    text: String,
}

impl List {
    pub fn read(file: &Path) -> Result<Self, ListError> {
        let name = file.display().to_string();
        match File::open(file).and_then(read_whole) {
            Ok(text) => Ok(Self { file: name, text }),
            Err(error) => Err(ListError::File {
                file: name,
                error: error.to_string(),
            }),
        }
    }

    /// The first line.
    pub fn heading(&self) -> Option<&str> {
        self.text.lines().next().map(str::trim)
    }

    /// The lines behind it that are not empty, each with its number.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines()).skip(1);
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

// The writes of an application, to send them again.

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The time since the write before; the first one's is counted from the stream's start.
    pub gap: Duration,
    /// The message's bytes, 1 to 1 MiB.
    pub size: u32,
}

/// The heading of a list of writes as CSV.
pub const WRITES_HEADING: &str = "gap_ms,size";

/// Reads a list of writes from CSV: the heading [`WRITES_HEADING`], then a write a line, the time
/// since the one before in milliseconds and the bytes.
///
/// # Errors
/// With the line that is wrong, or the system's reason why the file cannot be read.
pub fn read_writes(file: &Path) -> Result<Vec<Write>, ListError> {
    let list = List::read(file)?;
    if list.heading() != Some(WRITES_HEADING) {
        return Err(list.wrong(1, format!("expected the heading `{WRITES_HEADING}`")));
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
                (None, _) => Err(list.wrong(number, "the gap must be a time in milliseconds")),
                (_, None) => {
                    let what = format!("the size must be a number of bytes from 1 to {MAX_SIZE}");
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
    fn what_never_ends_is_refused_before_it_fills_the_memory() {
        let error = read_whole(io::repeat(b'0')).unwrap_err().to_string();
        assert_eq!(error, "more than 256 MiB; give a shorter list");
    }

    #[test]
    fn a_list_is_read_and_its_mistakes_are_named_with_their_line() {
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
        for (text, says) in [
            ("", ":1: expected the heading"),
            ("gap_ms,size\nx,1\n", ":2: the gap must be"),
            ("gap_ms,size\n-1,1\n", ":2: the gap must be"),
            ("gap_ms,size\n1,1\n\n1\n", ":4: the size must be"),
            ("gap_ms,size\n1,0\n", ":2: the size must be"),
            ("gap_ms,size\n1,1048577\n", "from 1 to 1048576"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        fs::remove_file(&file).unwrap();
    }
}
