use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

/// A file of records: CSV, compressed by zstd where its name ends so.
///
/// The heading, which comes with the first record, has the names of the record's fields, which are
/// those in JSON; what is not known is left empty.
pub struct CsvFile(csv::Writer<To>);

#[allow(clippy::large_enum_variant)]
enum To {
    /// The file is written as it is.
    Plain(File),
    /// The file is compressed by zstd's fastest level: samples are much alike.
    Compressed(zstd::Encoder<'static, File>),
}

impl CsvFile {
    /// Makes the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        let to = match is_compressed {
            true => To::Compressed(zstd::Encoder::new(file, 1)?),
            false => To::Plain(file),
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
        match to.map_err(|error| io::Error::other(error.to_string()))? {
            To::Plain(_) => Ok(()),
            To::Compressed(encoder) => encoder.finish().map(drop),
        }
    }
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Compressed(encoder) => encoder.write(bytes),
        }
    }

    /// Leaves what the encoder holds back where it is: a block of its own would be compressed less.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Compressed(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;

    use pillion_host::TcpInfo;

    use super::*;
    use crate::sample::{Named, Sample, State};

    #[test]
    fn columns_are_the_fields_of_json_plain_and_compressed() {
        let end = SocketAddr::from(([127, 0, 0, 1], 7001));
        let named = Named {
            local: end,
            peer: end,
            state: State::FinWait1,
        };
        // As old kernels answer: some fields are not known.
        let sample = Sample::new(7, named, TcpInfo::new(&[0; 104]));
        let folder = tempfile::tempdir().unwrap();
        let [plain, compressed] = ["plain.csv", "compressed.csv.zst"].map(|name| {
            let path = folder.path().join(name);
            let mut file = CsvFile::create(&path).unwrap();
            file.write([sample, sample]).unwrap();
            file.write([&sample]).unwrap();
            file.finish().unwrap();
            fs::read(path).unwrap()
        });
        assert_eq!(zstd::decode_all(&compressed[..]).unwrap(), plain);

        let text = String::from_utf8(plain).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 4, "{text}");
        let json = serde_json::to_value(sample).unwrap();
        let json = json.as_object().unwrap();
        assert_eq!(lines[0].len(), json.len());
        for (name, value) in lines[0].iter().zip(&lines[1]) {
            let expected = match &json[*name] {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            assert_eq!(*value, expected, "{name}");
        }
    }
}
