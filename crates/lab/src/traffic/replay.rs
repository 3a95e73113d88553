//! The writes of an application, to send them again.

use std::path::Path;
use std::time::Duration;

use crate::traffic::list::{List, ListError};
use crate::traffic::wire::MAX_SIZE;

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
