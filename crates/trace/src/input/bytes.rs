//! The bytes of a trace: decompression, read window, fields.

use std::io::{self, BufReader, Cursor, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A zstd frame without data starts with 0x50 to 0x5f, then these bytes (RFC 8878, section 3.1.2).
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Compression of a trace, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, of one or several members (RFC 1952).
    Gzip,
    /// Zstandard, of one or several frames (RFC 8878).
    Zstd,
}

impl Compression {
    fn detect(start: &[u8]) -> Option<Self> {
        match start {
            _ if start.starts_with(&GZIP) => Some(Self::Gzip),
            _ if start.starts_with(&ZSTD) => Some(Self::Zstd),
            [0x50..=0x5f, rest @ ..] if rest.starts_with(&ZSTD_SKIPPABLE) => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Decompresses `source` and returns its compression.
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
    let compression = Compression::detect(start);
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

/// Bytes per read: few system calls, and still within a core's cache.
const READ_BYTES: usize = 256 << 10;

/// The part of a trace in memory. It slides over the source and is at most one read or twice the
/// longest record.
pub(super) struct Window {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    consumed: u64,
}

impl Window {
    pub fn new(source: Box<dyn Read + Send>) -> Self {
        Self {
            source,
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            consumed: 0,
        }
    }

    /// Bytes of the trace before the window.
    pub fn offset(&self) -> u64 {
        self.consumed
    }

    /// Bytes that have been read and not yet taken.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads until the window has `len` bytes; false if the trace ends before.
    #[inline]
    pub fn fill_to(&mut self, len: usize) -> io::Result<bool> {
        if self.end - self.start >= len {
            return Ok(true);
        }
        self.read(len)
    }

    #[cold]
    fn read(&mut self, len: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < len {
            if self.end == self.buffer.len() {
                // The buffer grows with the bytes read, not with claimed lengths.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let Some(space) = self.buffer.get_mut(self.end..) else {
                return Ok(false);
            };
            let room = space.len();
            match self.source.read(space) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read.min(room),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes the next `len` bytes, or as many as the window has.
    #[inline]
    pub fn take(&mut self, len: usize) -> &[u8] {
        let from = self.start;
        let len = len.min(self.end - from);
        self.start += len;
        self.consumed += len as u64;
        self.buffer.get(from..self.start).unwrap_or_default()
    }

    /// Skips `len` bytes without storing them; false if the trace ends before.
    pub fn skip(&mut self, mut len: u64) -> io::Result<bool> {
        while len > 0 {
            if !self.fill_to(1)? {
                return Ok(false);
            }
            let here = (self.end - self.start).min(usize::try_from(len).unwrap_or(usize::MAX));
            self.take(here);
            len -= here as u64;
        }
        Ok(true)
    }
}

/// The byte order of a trace's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Big,
    Little,
}

impl ByteOrder {
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Big => u64::from_be_bytes(bytes),
            Self::Little => u64::from_le_bytes(bytes),
        }
    }
}

/// Reads fields in sequence; `None` if too few bytes remain.
#[derive(Clone, Copy)]
pub(super) struct FieldReader<'a> {
    pub rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> FieldReader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }

    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    /// Four numbers at once; `None` if not all remain.
    #[inline]
    pub fn four_u32(&mut self) -> Option<[u32; 4]> {
        let bytes: [u8; 16] = self.array()?;
        let words: &[[u8; 4]; 4] = bytes.as_chunks().0.try_into().ok()?;
        Some(words.map(|word| self.order.u32(word)))
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(field)
    }
}
