use std::cell::RefCell;
use std::fs::File;
use std::io::Write;

use crate::report::{Part, REPORTS, Report};

/// Tells the host.
pub struct Teller(RefCell<File>);

impl Teller {
    pub fn open() -> Result<Self, String> {
        let port = File::options().write(true).open(REPORTS);
        port.map(|port| Self(RefCell::new(port)))
            .map_err(|error| format!("{REPORTS}: {error}"))
    }

    pub fn tell(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = self.0.borrow_mut().write_all(&line);
        written.map_err(|error| format!("{REPORTS}: {error}"))
    }

    /// Does a part of the work and tells what came of it; `false` if it failed.
    pub fn part(
        &self,
        part: Part,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, String> {
        let came = work();
        let passed = came.is_ok();
        if let Err(reason) = came {
            self.tell(&Report::Failed(part, reason))?;
        }
        self.tell(&Report::Done(part))?;
        Ok(passed)
    }
}
