use std::io::{self, ErrorKind, Read};

/// Mebibytes that a line may have; a record takes some hundred bytes.
const MOST_MEBIBYTES: usize = 1;

/// Bytes with lines that a record may have. What is no file of records may have none at all, and would
/// be held in memory as one.
pub(crate) struct Lines<R> {
    from: R,
    /// Bytes of the last line, as far as they were read.
    length: usize,
}

impl<R: Read> Lines<R> {
    pub fn of(from: R) -> Self {
        Self { from, length: 0 }
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        let read = buffer[..count].iter();
        self.length = match read.rev().position(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(behind) => behind,
            None => self.length + count,
        };
        if self.length > MOST_MEBIBYTES << 20 {
            let what = format!("a line is longer than {MOST_MEBIBYTES} MiB, as no record is");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        Ok(count)
    }
}
