//! The file of `--stats`: whole at any moment, for it is put in place of the one before.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{Attachment, Totals};
use pillion_cli::exit::one_line;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::say_line;

use crate::lent::refuse;

/// How old the file may be while pillion runs.
const EVERY: Duration = Duration::from_secs(10);

/// Where the account goes, if that is wanted.
pub struct Stats {
    file: Option<OutputFile>,
    next: Instant,
    /// Why it cannot be written, if that is so.
    failing: Option<String>,
}

impl Stats {
    /// To the file with this name, if there is one. It is known then that it can be written; nothing
    /// is written yet.
    pub fn to(path: Option<PathBuf>) -> Result<Self> {
        let file = path.map(|path| {
            refuse("--stats")?;
            OutputFile::to("--stats", &path)
        });
        Ok(Self {
            file: file.transpose()?,
            next: Instant::now(),
            failing: None,
        })
    }

    /// Writes it if it was last written long ago.
    pub fn keep_up(&mut self, attachment: &Attachment) {
        if self.file.is_some() && Instant::now() >= self.next {
            self.now(attachment);
        }
    }

    /// Writes it; what fails is said once, until it succeeds.
    pub fn now(&mut self, attachment: &Attachment) {
        self.next = Instant::now() + EVERY;
        let totals = attachment.totals().map_err(anyhow::Error::from);
        let written = totals.and_then(|totals| self.write(&totals));
        let failing = written.err().map(|error| one_line(&error));
        if let (Some(why), None) = (&failing, &self.failing) {
            say_line!("pillion: {why}; trying again");
        }
        self.failing = failing;
    }

    /// Why it cannot be written, if that is so.
    pub fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    pub fn write(&self, totals: &Totals) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.write_now(&(serde_json::to_string_pretty(totals)? + "\n"))
    }
}
