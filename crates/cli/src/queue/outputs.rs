use std::io;

use anyhow::{Context, Result};
use pillion_queue::measure::{Measures, Summary};
use pillion_queue::{Event, Reasons, Row};
use pillion_records::Writer;

use super::Args;

/// Where events of the queue go: into the file asked for, and into the measures.
pub struct Outputs {
    csv: Option<Writer>,
    measures: Measures,
}

impl Outputs {
    pub fn open(args: &Args) -> Result<Self> {
        let csv = args.csv.as_ref().map(|path| {
            let name = path.display();
            Writer::create(path).with_context(|| format!("write {name}"))
        });
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
        let finished = self.csv.map(Writer::finish).transpose();
        finished.context("write the CSV")?;
        Ok(self.measures.finish(reasons))
    }
}
