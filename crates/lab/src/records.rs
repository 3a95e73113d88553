//! Files of records: CSV, compressed by zstd where their names end in `.zst`.
//!
//! The heading has the names of the record's fields, which are those in JSON; what is not known is
//! left empty. So that it follows from the fields, it comes with the first record: a file without
//! records is empty.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use pillion_bpf::host::atomic_file::Replacement;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

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

/// Writes a file of records.
pub struct Writer(csv::Writer<To>);

#[allow(clippy::large_enum_variant)]
enum To {
    /// The file is written as it is.
    Plain(Place),
    /// The file is compressed by zstd's fastest level: records are much alike.
    Compressed(zstd::Encoder<'static, Place>),
}

/// Where the file's bytes go.
enum Place {
    Itself(File),
    Beside(Replacement),
}

impl Writer {
    /// Makes the file; one that is there is emptied.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::to(path, Place::Itself(File::create(path)?))
    }

    /// Makes a file that takes the place of one that is there once it is finished; until then, that
    /// one stays as it is.
    ///
    /// # Errors
    /// What the system says.
    pub fn replacing(path: &Path) -> io::Result<Self> {
        let place = match Replacement::begin(path)? {
            Some(new) => Place::Beside(new),
            None => Place::Itself(File::options().write(true).open(path)?),
        };
        Self::to(path, place)
    }

    fn to(path: &Path, place: Place) -> io::Result<Self> {
        let to = match is_compressed(path) {
            true => To::Compressed(zstd::Encoder::new(place, 1)?),
            false => To::Plain(place),
        };
        Ok(Self(csv::Writer::from_writer(to)))
    }

    /// Adds records, all of one type.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&mut self, records: impl IntoIterator<Item: Serialize>) -> io::Result<()> {
        let mut records = records.into_iter();
        Ok(records.try_for_each(|record| self.0.serialize(record))?)
    }

    /// Writes what of the file is still held back, and ends it.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()?;
        let to = self.0.into_inner();
        let place = match to.map_err(|error| io::Error::other(error.to_string()))? {
            To::Plain(place) => place,
            To::Compressed(encoder) => encoder.finish()?,
        };
        match place {
            Place::Itself(_) => Ok(()),
            Place::Beside(new) => new.finish(),
        }
    }
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(place) => place.write(bytes),
            Self::Compressed(encoder) => encoder.write(bytes),
        }
    }

    /// Leaves what the encoder holds back where it is: a block of its own would be compressed less.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(place) => place.flush(),
            Self::Compressed(_) => Ok(()),
        }
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Itself(file) => file.write(bytes),
            Self::Beside(new) => new.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Itself(file) => file.flush(),
            Self::Beside(new) => new.flush(),
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
    fn records_survive_a_file_plain_and_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
        let text = written(&plain);
        assert_eq!(zstd::decode_all(&written(&compressed)[..]).unwrap(), text);
        let expected = [records(), records()].concat();
        assert_eq!(read_all(&plain).unwrap(), expected);
        assert_eq!(read_all(&compressed).unwrap(), expected);
    }

    #[test]
    fn columns_are_the_fields_of_json() {
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
    fn what_cannot_be_read_is_named_with_its_line_and_ends_the_reading() {
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
        assert!(matches!(read_all(&path), Err(ReadError::Cut)));
        fs::write(&path, good).unwrap();
        assert!(matches!(read_all(&path), Err(ReadError::Io(_))));
        assert!(read_all(&folder.path().join("b")).is_err());
    }

    #[test]
    fn a_file_stays_as_it_is_until_the_one_that_replaces_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.csv", "a.csv.zst"] {
            let path = folder.path().join(name);
            let old = written(&path);
            let begun = || {
                let mut new = Writer::replacing(&path).unwrap();
                new.write([&records()[0]]).unwrap();
                assert_eq!(fs::read(&path).unwrap(), old);
                new
            };
            drop(begun());
            assert_eq!(fs::read(&path).unwrap(), old);
            begun().finish().unwrap();
            assert_eq!(read_all(&path).unwrap(), records()[..1]);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_has_no_lines_is_refused_before_it_fills_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
        let zeros = vec![0; 8 << 20];
        fs::write(&plain, &zeros).unwrap();
        fs::write(&compressed, zstd::encode_all(&zeros[..], 1).unwrap()).unwrap();
        for path in [plain, compressed] {
            let error = read_all(&path).unwrap_err().to_string();
            assert_eq!(error, "a line is longer than 1 MiB, as no record is");
        }
    }
}
