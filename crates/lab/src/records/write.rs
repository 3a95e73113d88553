use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use pillion_bpf::host::atomic_file::Replacement;
use serde::Serialize;

use crate::records::is_compressed;

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
