//! The writes of an application, to send them again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::wire::MAX_SIZE;

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The time since the write before; the first one's is counted from the stream's start.
    pub gap: Duration,
    /// Its bytes, 1 to 1 MiB.
    pub size: u32,
}

/// Why a list of writes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WritesError {
    /// The file cannot be.
    #[error("{file}: {error}")]
    File {
        /// Its name.
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

/// The heading of a list of writes as CSV.
pub const WRITES_HEADING: &str = "gap_ms,size";

/// Reads a list of writes from CSV: the heading [`WRITES_HEADING`], then a write a line, the time
/// since the one before in milliseconds and the bytes.
///
/// # Errors
/// With the line that is wrong, or the system's reason why the file cannot be read.
pub fn read_writes(file: &Path) -> Result<Vec<Write>, WritesError> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| WritesError::File {
        file: name.clone(),
        error: error.to_string(),
    })?;
    let wrong = |line, what: String| WritesError::Line {
        file: name.clone(),
        line,
        what,
    };
    let mut lines = (1..).zip(text.lines());
    if lines.next().map(|(_, heading)| heading.trim()) != Some(WRITES_HEADING) {
        let what = format!("expected the heading `{WRITES_HEADING}`");
        return Err(wrong(1, what));
    }
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
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
                (None, _) => Err(wrong(
                    number,
                    "the gap must be a time in milliseconds".into(),
                )),
                (_, None) => {
                    let what = format!("the size must be a number of bytes from 1 to {MAX_SIZE}");
                    Err(wrong(number, what))
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
