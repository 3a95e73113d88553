use std::io::{self, ErrorKind, Read};

/// Bytes asked of the source at once: few system calls, and still within a core's cache.
const READ: usize = 256 << 10;

/// The part of a trace that is in memory: it slides over the source and is never longer than
/// one read, or twice the longest record.
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
            buffer: vec![0; READ],
            start: 0,
            end: 0,
            consumed: 0,
        }
    }

    /// Bytes of the trace before the window.
    pub fn offset(&self) -> u64 {
        self.consumed
    }

    /// What has been read and not taken yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads until the window holds `len` bytes; false if the trace ends before.
    #[inline]
    pub fn holds(&mut self, len: usize) -> io::Result<bool> {
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
                // By what has been read, not by what a length claims.
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

    /// Takes the next `len` bytes, or as many of them as the window holds.
    #[inline]
    pub fn take(&mut self, len: usize) -> &[u8] {
        let from = self.start;
        let len = len.min(self.end - from);
        self.start += len;
        self.consumed += len as u64;
        self.buffer.get(from..self.start).unwrap_or_default()
    }

    /// Passes over `len` bytes without keeping them; false if the trace ends before.
    pub fn skip(&mut self, mut len: u64) -> io::Result<bool> {
        while len > 0 {
            if !self.holds(1)? {
                return Ok(false);
            }
            let here = (self.end - self.start).min(usize::try_from(len).unwrap_or(usize::MAX));
            self.take(here);
            len -= here as u64;
        }
        Ok(true)
    }
}
