use std::collections::HashMap;
use std::io;

use pillion_traffic::{Measured, Record};
use serde::Deserialize;

use super::StoredRun;
use crate::Error;
use crate::run::{RECORDS_FILE, STREAMS_FILE};

/// What is needed of a group in the file of streams.
#[derive(Deserialize)]
struct GroupFile {
    name: String,
    sent: SentFile,
}

#[derive(Deserialize)]
struct SentFile {
    streams: Vec<StreamFile>,
}

#[derive(Deserialize)]
struct StreamFile {
    stream: u32,
}

impl StoredRun {
    /// Tells of each message that was delivered, with its group's name, stream by stream in the order
    /// of sending; of none where the run kept no records.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn messages(&self, mut tell: impl FnMut(&str, &Record)) -> Result<(), Error> {
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(());
        }
        let groups: Vec<GroupFile> = self.json(STREAMS_FILE)?;
        let mut names = HashMap::new();
        for group in &groups {
            let streams = group.sent.streams.iter();
            names.extend(streams.map(|it| (it.stream, &*group.name)));
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        for record in pillion_records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == Measured::Delivery
                && let Some(name) = names.get(&record.stream)
            {
                tell(name, &record);
            }
        }
        Ok(())
    }
}
