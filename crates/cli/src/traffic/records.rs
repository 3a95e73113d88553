use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use pillion_traffic::records::{CSV_HEADING, RecordsError, read_records};

use pillion_settings::BadInput;

/// Show the records that `receive` or `send` wrote, as CSV
///
/// A line for each message: what was measured (delivery or round-trip), stream, sequence, size
/// in bytes, when it was handed over (CLOCK_MONOTONIC in ns) and the latency in microseconds.
#[derive(clap::Args)]
pub struct Args {
    /// The records
    file: PathBuf,

    /// Write the CSV to FILE [default: standard output]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let name = self.file.display().to_string();
        let bad = |error: RecordsError| match error {
            RecordsError::Io(error) => anyhow!(error).context(format!("read {name}")),
            error => BadInput(format!("{name}: {error}")).into(),
        };
        let from = File::open(&self.file).map_err(|error| BadInput(format!("{name}: {error}")))?;
        let records = read_records(from).map_err(bad)?;
        let to: Box<dyn Write> = match create(self.csv.as_deref())? {
            Some(file) => Box::new(file),
            None => Box::new(io::stdout().lock()),
        };
        let mut to = BufWriter::new(to);
        let lines = std::iter::once(Ok(CSV_HEADING.to_owned()))
            .chain(records.map(|record| record.map(|record| record.to_string())));
        for line in lines {
            // What comes before a mistake is told all the same.
            let line = line.or_else(|error| to.flush().map_err(RecordsError::Io).and(Err(error)));
            let line = line.map_err(bad)?;
            match writeln!(to, "{line}") {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                result => result.context("write the CSV")?,
            }
        }
        match to.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("write the CSV")
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// The file to write, made before anything else is done.
pub fn create(path: Option<&Path>) -> Result<Option<File>> {
    path.map(|path| File::create(path).with_context(|| format!("write {}", path.display())))
        .transpose()
}
