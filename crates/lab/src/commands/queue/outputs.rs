use std::io;

use anyhow::Result;
use pillion_lab::queue::measure::{Measures, Summary};
use pillion_lab::queue::{Event, Reasons, Row};

use super::Args;
use crate::commands::records_output::RecordsOutput;

/// Where events of the queue go: into the file asked for, and into the measures.
pub struct Outputs {
    csv: Option<RecordsOutput>,
    measures: Measures,
}

impl Outputs {
    pub fn open(args: &Args) -> Result<Self> {
        let csv = args.csv.as_ref();
        let csv = csv.map(|path| RecordsOutput::to("--csv", path));
        Ok(Self {
            csv: csv.transpose()?,
            measures: Measures::default(),
        })
    }

    pub fn take(&mut self, event: &Event, reasons: &Reasons) -> io::Result<()> {
        self.measures.add(event);
        match &mut self.csv {
            Some(csv) => csv.write(Row::of(event, reasons)),
            None => Ok(()),
        }
    }

    pub fn finish(self, reasons: &Reasons) -> Result<Summary> {
        self.csv.map(RecordsOutput::finish).transpose()?;
        Ok(self.measures.finish(reasons))
    }
}
