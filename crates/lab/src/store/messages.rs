use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use crate::traffic::{Measured, Record};

use super::StoredRun;
use crate::Error;
use crate::run::RECORDS_FILE;

/// Whose a message is.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The name of its group.
    pub group: &'a str,
    /// Where its stream comes from.
    pub sender: SocketAddr,
}

impl StoredRun {
    /// Tells of each message that was delivered, with whose it is, stream by stream in the order
    /// of sending; of none where the run kept no records.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn messages(&self, mut tell: impl FnMut(&Origin<'_>, &Record)) -> Result<(), Error> {
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(());
        }
        let groups = self.streams()?;
        let mut origins = HashMap::new();
        for group in &groups {
            let streams = group.sent.streams.iter();
            origins.extend(streams.map(|it| {
                let origin = Origin {
                    group: &group.name,
                    sender: group.sender(it.stream),
                };
                (it.stream, origin)
            }));
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        for record in crate::records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == Measured::Delivery
                && let Some(origin) = origins.get(&record.stream)
            {
                tell(origin, &record);
            }
        }
        Ok(())
    }
}
