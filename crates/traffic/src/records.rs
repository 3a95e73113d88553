//! A record of every message: in memory, in a file, and as CSV.
//!
//! The file, all numbers little-endian: a heading of 16 bytes, the magic `pillrec` and a line feed,
//! the version 1 (4 bytes) and the length of a record (4 bytes, 32); then records:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | what was measured: 0 delivery, 1 round trip |
//! | 4 | 4 | stream, the connection's number at its sender |
//! | 8 | 4 | sequence, the message's (or answer's) number within the stream, from 0 |
//! | 12 | 4 | size in bytes |
//! | 16 | 8 | when the message was handed over, `CLOCK_MONOTONIC` in ns, to the microsecond |
//! | 24 | 8 | latency in ns |

use std::io::{self, Read, Write};

use crate::clock::us;

/// One message received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Which latency this is.
    pub measured: Measured,
    /// The stream's number at its sender.
    pub stream: u32,
    /// The message's number within the stream; for a round trip, the answer's.
    pub sequence: u32,
    /// Its bytes; for a round trip, the answer's.
    pub size: u32,
    /// `CLOCK_MONOTONIC` in ns, to the microsecond, when the sending application handed the
    /// message over.
    pub sent_ns: u64,
    /// In microseconds: when the read that completed the message (or its answer) returned, minus
    /// `sent_ns`.
    pub latency_us: f64,
}

/// What a latency is the latency of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// A message, from the sender's write to the receiver's read.
    Delivery,
    /// A message and its answer, from the sender's write to the sender's read.
    RoundTrip,
}

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The system's reason.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file does not begin as one of records does.
    #[error("no file of records; `pillion traffic receive --records FILE` makes one")]
    Heading,
    /// A newer pillion made it.
    #[error("records of version {0}, and this pillion knows 1; use the one that made them")]
    Version(u32),
    /// A record says that something unknown was measured.
    #[error("record {record}: {found} says neither delivery (0) nor round trip (1)")]
    Measured {
        /// Which record, from 1.
        record: u64,
        /// What it says.
        found: u32,
    },
    /// The file ends within a record.
    #[error("cut off in record {0}; those before it are whole")]
    Cut(u64),
}

const MAGIC: &[u8; 8] = b"pillrec\n";
const VERSION: u32 = 1;
const LEN: usize = 32;

/// Writes a file of records.
pub fn write_records(records: &[Record], to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.write_all(&(LEN as u32).to_le_bytes())?;
    for record in records {
        let measured = record.measured as u32;
        for field in [measured, record.stream, record.sequence, record.size] {
            to.write_all(&field.to_le_bytes())?;
        }
        to.write_all(&record.sent_ns.to_le_bytes())?;
        // What does not fit, which is no latency, is the nearest that does.
        let latency_ns = (record.latency_us * 1e3).round() as u64;
        to.write_all(&latency_ns.to_le_bytes())?;
    }
    to.flush()
}

/// Reads a file of records, one at a time.
///
/// # Errors
/// When it is no such file; each record may be an error as well, and is then the last one.
pub fn read_records(
    from: impl Read,
) -> Result<impl Iterator<Item = Result<Record, RecordsError>>, RecordsError> {
    let mut from = io::BufReader::new(from);
    let mut heading = [0; 16];
    if read_all(&mut from, &mut heading)? < 16 || heading[..8] != MAGIC[..] {
        return Err(RecordsError::Heading);
    }
    match (u32_at(&heading, 8), u32_at(&heading, 12)) {
        (VERSION, len) if len as usize == LEN => {}
        (version, _) => return Err(RecordsError::Version(version)),
    }
    let mut number = 0;
    let mut ended = false;
    Ok(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        number += 1;
        let result = read_record(&mut from, number).transpose()?;
        ended = result.is_err();
        Some(result)
    }))
}

fn read_record(from: &mut impl Read, number: u64) -> Result<Option<Record>, RecordsError> {
    let mut bytes = [0; LEN];
    match read_all(from, &mut bytes)? {
        0 => return Ok(None),
        LEN => {}
        _ => return Err(RecordsError::Cut(number)),
    }
    let measured = match u32_at(&bytes, 0) {
        0 => Measured::Delivery,
        1 => Measured::RoundTrip,
        found => {
            let record = number;
            return Err(RecordsError::Measured { record, found });
        }
    };
    Ok(Some(Record {
        measured,
        stream: u32_at(&bytes, 4),
        sequence: u32_at(&bytes, 8),
        size: u32_at(&bytes, 12),
        sent_ns: u64_at(&bytes, 16),
        latency_us: us(u64_at(&bytes, 24)),
    }))
}

/// As many bytes as there are, up to the buffer's length.
fn read_all(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn u32_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

fn u64_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

/// The heading of records as CSV, with the units.
pub const CSV_HEADING: &str = "measured,stream,sequence,size,sent_ns,latency_us";

/// A line of CSV, without its end.
impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let measured = match self.measured {
            Measured::Delivery => "delivery",
            Measured::RoundTrip => "round-trip",
        };
        let (stream, sequence, size, sent_ns) =
            (self.stream, self.sequence, self.size, self.sent_ns);
        let latency_us = self.latency_us;
        write!(
            f,
            "{measured},{stream},{sequence},{size},{sent_ns},{latency_us:.3}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record {
        measured: Measured::Delivery,
        stream: 1,
        sequence: 2,
        size: 120,
        sent_ns: 3_000_004_000,
        latency_us: 75_012.34,
    };

    fn bytes(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_records(records, &mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, RecordsError> {
        read_records(bytes)?.collect()
    }

    #[test]
    fn csv_has_microseconds_and_keeps_nanoseconds() {
        assert_eq!(
            CSV_HEADING,
            "measured,stream,sequence,size,sent_ns,latency_us"
        );
        assert_eq!(RECORD.to_string(), "delivery,1,2,120,3000004000,75012.340");
    }

    #[test]
    fn records_survive_a_file() {
        let measured = Measured::RoundTrip;
        let records = [
            RECORD,
            Record {
                measured,
                sequence: 3,
                ..RECORD
            },
        ];
        let file = bytes(&records);
        assert_eq!(file.len(), 16 + 2 * 32);
        assert_eq!(read(&file).unwrap(), records);
        assert_eq!(read(&bytes(&[])).unwrap(), []);
    }

    #[test]
    fn what_is_no_file_of_records_is_refused() {
        for wrong in [&b""[..], b"pillrec\n", b"stream,sequence,size\n1,2,3\n"] {
            assert!(matches!(read(wrong), Err(RecordsError::Heading)));
        }
        let mut newer = bytes(&[RECORD]);
        newer[8] = 2;
        assert!(matches!(read(&newer), Err(RecordsError::Version(2))));
        let mut unknown = bytes(&[RECORD]);
        unknown[16] = 9;
        assert!(matches!(
            read(&unknown),
            Err(RecordsError::Measured {
                record: 1,
                found: 9
            })
        ));
    }

    #[test]
    fn of_a_file_cut_off_the_whole_records_are_read() {
        let file = bytes(&[RECORD, RECORD]);
        let all: Vec<_> = read_records(&file[..file.len() - 1]).unwrap().collect();
        assert!(matches!(all[..], [Ok(RECORD), Err(RecordsError::Cut(2))]));
    }
}
