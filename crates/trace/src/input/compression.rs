use std::io::{self, BufReader, Cursor, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame of zstd that holds no data has 0x50 to 0x5f before these (RFC 8878, section 3.1.2).
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// How a trace is compressed, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, of one or several members (RFC 1952).
    Gzip,
    /// Zstandard, of one or several frames (RFC 8878).
    Zstd,
}

impl Compression {
    fn of(start: &[u8]) -> Option<Self> {
        match start {
            _ if start.starts_with(&GZIP) => Some(Self::Gzip),
            _ if start.starts_with(&ZSTD) => Some(Self::Zstd),
            [0x50..=0x5f, rest @ ..] if rest.starts_with(&ZSTD_SKIPPABLE) => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The trace within `source`, and how it was compressed.
pub(super) fn unpack<R: Read + Send + 'static>(
    mut source: R,
) -> io::Result<(Box<dyn Read + Send>, Option<Compression>)> {
    let mut start = [0; 4];
    let mut len = 0;
    while let Some(space) = start.get_mut(len..).filter(|space| !space.is_empty()) {
        match source.read(space) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let start = start.get(..len).unwrap_or_default();
    let compression = Compression::of(start);
    let whole = Cursor::new(start.to_vec()).chain(source);
    Ok((
        match compression {
            None => Box::new(whole),
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(BufReader::new(whole))),
            Some(Compression::Zstd) => Box::new(zstd::Decoder::new(whole)?),
        },
        compression,
    ))
}
