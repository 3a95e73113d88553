use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::is_compressed;

/// Writes a file of records.
pub struct Writer(csv::Writer<To>);

#[allow(clippy::large_enum_variant)]
enum To {
    /// The file is written as it is.
    Plain(File),
    /// The file is compressed by zstd's fastest level: records are much alike.
    Compressed(zstd::Encoder<'static, File>),
}

impl Writer {
    /// Makes the file; one that is there is emptied.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let to = match is_compressed(path) {
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

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
