use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use pillion_queue::measure::{Measures, Summary};
use pillion_queue::{Description, Event, EventWriter, PacketRow, Reasons};

use super::Args;

/// Where events of the queue go: into the files asked for, and into the measures.
pub struct Outputs {
    events: Option<EventWriter<File>>,
    csv: Option<csv::Writer<File>>,
    reasons: Reasons,
    measures: Measures,
}

impl Outputs {
    pub fn open(args: &Args, description: Description) -> Result<Self> {
        let events = create(args.events.as_deref())?
            .map(|file| EventWriter::new(file, &description))
            .transpose()
            .context("write the events")?;
        Ok(Self {
            events,
            csv: create(args.csv.as_deref())?.map(csv::Writer::from_writer),
            reasons: description.reasons,
            measures: Measures::default(),
        })
    }

    pub fn take(&mut self, event: &Event) -> io::Result<()> {
        self.measures.add(event);
        if let Some(events) = &mut self.events {
            events.write(event)?;
        }
        if let (Some(csv), Event::Packet(packet)) = (&mut self.csv, event) {
            csv.serialize(PacketRow::new(packet, &self.reasons))?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Summary> {
        if let Some(events) = &mut self.events {
            events.flush().context("write the events")?;
        }
        if let Some(csv) = &mut self.csv {
            csv.flush().context("write the CSV")?;
        }
        Ok(self.measures.finish(&self.reasons))
    }
}

/// The file to write, made before anything else is done.
fn create(path: Option<&Path>) -> Result<Option<File>> {
    path.map(|path| File::create(path).with_context(|| format!("write {}", path.display())))
        .transpose()
}
