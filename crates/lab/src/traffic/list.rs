//! Lists in CSV files: a heading, then an entry a line.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused_before_it_fills_the_memory() {
        let error = read_whole(io::repeat(b'0')).unwrap_err().to_string();
        assert_eq!(error, "more than 256 MiB; give a shorter list");
    }
}
