use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// How much of a trace's file has been read, as it lies on disk.
#[derive(Debug, Clone)]
pub struct Progress {
    read: Arc<AtomicU64>,
    len: Option<u64>,
}

impl Progress {
    pub(super) fn new(len: Option<u64>) -> Self {
        Self {
            read: Arc::default(),
            len,
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file when it was opened; `None` for a pipe.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.len
    }
}

/// A source whose bytes are counted.
pub(super) struct Metered<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R> Metered<R> {
    pub fn new(source: R, progress: &Progress) -> Self {
        Self {
            source,
            read: Arc::clone(&progress.read),
        }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
