use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pillion_cli::output_file::refuse_dash;
use pillion_lab::records::Writer;
use serde::Serialize;

/// Output file of records. Opening it fails early if it cannot be written. An existing file is
/// replaced only when the new one is complete.
pub struct RecordsOutput {
    option: &'static str,
    path: PathBuf,
    writer: Writer,
}

impl RecordsOutput {
    pub fn to(option: &'static str, path: &Path) -> Result<Self> {
        refuse_dash(option, path)?;
        let writer = Writer::replacing(path).with_context(|| failed(option, path))?;
        let path = path.to_owned();
        Ok(Self {
            option,
            path,
            writer,
        })
    }

    pub fn write(&mut self, records: impl IntoIterator<Item: Serialize>) -> io::Result<()> {
        let written = self.writer.write(records);
        written.map_err(|error| {
            let why = format!("{}: {error}", failed(self.option, &self.path));
            io::Error::new(error.kind(), why)
        })
    }

    pub fn finish(self) -> Result<()> {
        let finished = self.writer.finish();
        finished.with_context(|| failed(self.option, &self.path))
    }
}

fn failed(option: &str, path: &Path) -> String {
    format!("write {option} {}", path.display())
}
