use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The record of what was done for a run, a line each with its time in seconds.
#[derive(Debug, Clone)]
pub struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    file: Mutex<File>,
}

impl Log {
    /// Begins a log; its times count from now.
    ///
    /// # Errors
    /// The system's, of making the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            begun: Instant::now(),
            file: Mutex::new(File::create_new(path)?),
        })))
    }

    /// Adds a line to the log. One that cannot be written is left out: what is measured matters
    /// more.
    pub fn say(&self, line: &str) {
        let elapsed = self.0.begun.elapsed().as_secs_f64();
        let mut file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(file, "{elapsed:.6} {line}");
    }
}
