//! Files of records: CSV, compressed with zstd if the name ends in `.zst`.
//!
//! The header contains the names of the record's fields, which are the same in JSON. Unknown values
//! are empty. The header is written with the first record, so a file without records is empty.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use pillion_bpf::host::atomic_file::AtomicFile;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Maximum line length in mebibytes; a record has some hundred bytes.
const MAX_LINE_MEBIBYTES: usize = 1;

/// Reader that limits the length of lines. A file of another type may have no line ends, and would
/// be loaded into memory as one record.
pub(crate) struct LineLimit<R> {
    from: R,
    /// Bytes read of the last line.
    length: usize,
}

impl<R: Read> LineLimit<R> {
    pub fn of(from: R) -> Self {
        Self { from, length: 0 }
    }
}

impl<R: Read> Read for LineLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        let read = buffer[..count].iter();
        self.length = match read.rev().position(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(trailing) => trailing,
            None => self.length + count,
        };
        if self.length > MAX_LINE_MEBIBYTES << 20 {
            let what = format!("line longer than {MAX_LINE_MEBIBYTES} MiB: not a file of records");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        Ok(count)
    }
}

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The error of the system, or of the decompression.
    #[error(transparent)]
    Io(io::Error),
    /// The compressed file is truncated.
    #[error("truncated file; the records before the end are complete")]
    Truncated,
    /// A line is invalid.
    #[error("line {line}: {what}")]
    Line {
        /// Line number from 1; the header is line 1.
        line: u64,
        /// The reason.
        what: String,
    },
}

/// Reads a file of records, one at a time.
///
/// # Errors
/// [`ReadError`] if the file does not exist or its header is invalid. Each record may also be an
/// error, and is then the last item.
pub fn read<T: DeserializeOwned>(
    path: &Path,
) -> Result<impl Iterator<Item = Result<T, ReadError>> + use<T>, ReadError> {
    let file = File::open(path).map_err(ReadError::Io)?;
    let from: Box<dyn Read> = match is_compressed(path) {
        true => Box::new(zstd::Decoder::new(file).map_err(ReadError::Io)?),
        false => Box::new(file),
    };
    let mut reader = csv::Reader::from_reader(LineLimit::of(from));
    // Without this call, the reader would treat an invalid header as a file without records.
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
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Truncated
            }
            csv::ErrorKind::Io(error) => Self::Io(error),
            _ => Self::Line { line, what },
        }
    }
}

/// Writes a file of records.
pub struct Writer(csv::Writer<Output>);

#[allow(clippy::large_enum_variant)]
enum Output {
    /// The file is not compressed.
    Plain(Destination),
    /// The file is compressed with zstd's fastest level: records are much alike.
    Compressed(zstd::Encoder<'static, Destination>),
}

/// Destination of the file's bytes.
enum Destination {
    Direct(File),
    Atomic(AtomicFile),
}

impl Writer {
    /// Creates the file, or truncates an existing one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::to(path, Destination::Direct(File::create(path)?))
    }

    /// Creates a file that replaces the existing one when it is finished; until then, the existing
    /// file remains unchanged.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn replacing(path: &Path) -> io::Result<Self> {
        let destination = match AtomicFile::create(path)? {
            Some(new) => Destination::Atomic(new),
            None => Destination::Direct(File::options().write(true).open(path)?),
        };
        Self::to(path, destination)
    }

    fn to(path: &Path, destination: Destination) -> io::Result<Self> {
        let to = match is_compressed(path) {
            true => Output::Compressed(zstd::Encoder::new(destination, 1)?),
            false => Output::Plain(destination),
        };
        Ok(Self(csv::Writer::from_writer(to)))
    }

    /// Adds records, all of one type.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn write(&mut self, records: impl IntoIterator<Item: Serialize>) -> io::Result<()> {
        let mut records = records.into_iter();
        Ok(records.try_for_each(|record| self.0.serialize(record))?)
    }

    /// Writes the buffered rest of the file and closes it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()?;
        let to = self.0.into_inner();
        let destination = match to.map_err(|error| io::Error::other(error.to_string()))? {
            Output::Plain(destination) => destination,
            Output::Compressed(encoder) => encoder.finish()?,
        };
        match destination {
            Destination::Direct(_) => Ok(()),
            Destination::Atomic(new) => new.finish(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(destination) => destination.write(bytes),
            Self::Compressed(encoder) => encoder.write(bytes),
        }
    }

    /// Does not flush the encoder's buffer: a separate block would compress worse.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(destination) => destination.flush(),
            Self::Compressed(_) => Ok(()),
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(file) => file.write(bytes),
            Self::Atomic(new) => new.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(file) => file.flush(),
            Self::Atomic(new) => new.flush(),
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Record {
        at_ns: u64,
        peer: SocketAddr,
        state: State,
        rtt_us: Option<f64>,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum State {
        FinWait1,
    }

    fn records() -> [Record; 2] {
        let record = Record {
            at_ns: 1 << 60,
            peer: "[2001:db8::1]:7001".parse().unwrap(),
            state: State::FinWait1,
            rtt_us: Some(75_012.345),
        };
        let unknown = Record {
            rtt_us: None,
            ..record.clone()
        };
        [record, unknown]
    }

    fn written(path: &Path) -> Vec<u8> {
        let mut file = Writer::create(path).unwrap();
        file.write(records()).unwrap();
        file.write(records()).unwrap();
        file.finish().unwrap();
        fs::read(path).unwrap()
    }

    fn read_all(path: &Path) -> Result<Vec<Record>, ReadError> {
        read(path)?.collect()
    }

    #[test]
    fn records_round_trip_plain_and_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
        let text = written(&plain);
        assert_eq!(zstd::decode_all(&written(&compressed)[..]).unwrap(), text);
        let expected = [records(), records()].concat();
        assert_eq!(read_all(&plain).unwrap(), expected);
        assert_eq!(read_all(&compressed).unwrap(), expected);
    }

    #[test]
    fn columns_match_json_fields() {
        let folder = tempfile::tempdir().unwrap();
        let text = String::from_utf8(written(&folder.path().join("a.csv"))).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 5, "{text}");
        for (record, line) in records().iter().zip(&lines[1..]) {
            let json = serde_json::to_value(record).unwrap();
            assert_eq!(lines[0].len(), json.as_object().unwrap().len());
            for (name, value) in lines[0].iter().zip(line) {
                let expected = match &json[*name] {
                    serde_json::Value::Null => String::new(),
                    serde_json::Value::String(text) => text.clone(),
                    number => number.to_string(),
                };
                assert_eq!(*value, expected, "{name}");
            }
        }
    }

    #[test]
    fn invalid_line_is_named_and_ends_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let good = "at_ns,peer,state,rtt_us\n1,10.0.0.1:1,fin-wait1,2\n";
        for (text, expected) in [
            ("none", None),
            ("stream,size\n1,2\n", Some("line 2: missing field `at_ns`")),
        ] {
            fs::write(&path, text).unwrap();
            let error = read_all(&path).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{text}");
        }
        fs::write(&path, format!("{good}x,10.0.0.1:1,fin-wait1,2\n{good}")).unwrap();
        let all: Vec<Result<Record, _>> = read(&path).unwrap().collect();
        assert_eq!(all.len(), 2);
        let error = all[1].as_ref().unwrap_err().to_string();
        assert_eq!(error, "line 3: field 0: invalid digit found in string");

        let path = folder.path().join("a.csv.zst");
        let whole = written(&path);
        fs::write(&path, &whole[..whole.len() - 8]).unwrap();
        assert!(matches!(read_all(&path), Err(ReadError::Truncated)));
        fs::write(&path, good).unwrap();
        assert!(matches!(read_all(&path), Err(ReadError::Io(_))));
        assert!(read_all(&folder.path().join("b")).is_err());
    }

    #[test]
    fn file_is_unchanged_until_replacement_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.csv", "a.csv.zst"] {
            let path = folder.path().join(name);
            let old = written(&path);
            let started = || {
                let mut new = Writer::replacing(&path).unwrap();
                new.write([&records()[0]]).unwrap();
                assert_eq!(fs::read(&path).unwrap(), old);
                new
            };
            drop(started());
            assert_eq!(fs::read(&path).unwrap(), old);
            started().finish().unwrap();
            assert_eq!(read_all(&path).unwrap(), records()[..1]);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn endless_line_is_rejected_at_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
        let zeros = vec![0; 8 << 20];
        fs::write(&plain, &zeros).unwrap();
        fs::write(&compressed, zstd::encode_all(&zeros[..], 1).unwrap()).unwrap();
        for path in [plain, compressed] {
            let error = read_all(&path).unwrap_err().to_string();
            assert_eq!(error, "line longer than 1 MiB: not a file of records");
        }
    }
}
