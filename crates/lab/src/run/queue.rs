use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::queue::{Event, Fate, Reasons, Recording, Row, Target};
use crate::records::Writer;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::testbed::Testbed;

/// A queue of the bottleneck's being watched.
#[derive(Debug)]
pub(super) struct QueueWatch {
    file: PathBuf,
    recording: Recording,
    events: Arc<Mutex<Events>>,
}

#[derive(Debug)]
struct Events {
    writer: Writer,
    seen: QueueSeen,
}

/// Packets of any kind that the queue probe saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSeen {
    /// Packets that went on to the device.
    pub sent: u64,
    /// Packets that were dropped, as they arrived or later.
    pub dropped: u64,
    /// Packets whose end was not seen.
    pub unseen: u64,
    /// Packets that could not be noted.
    pub missed: u64,
}

impl QueueWatch {
    /// Begins to watch; from now on nothing is missed without being counted.
    pub(super) fn start(
        testbed: &Testbed,
        device: &'static str,
        file: &Path,
    ) -> Result<Self, Error> {
        let target = testbed.router.enter(move || Target::find(device))??;
        let reasons = Reasons::of_this_kernel();
        let events = Arc::new(Mutex::new(Events {
            writer: Writer::create(file).map_err(Error::file(file))?,
            seen: QueueSeen::default(),
        }));
        let shared = Arc::clone(&events);
        let recording = Recording::start(&target, move |event| {
            let mut events = shared.lock().unwrap_or_else(PoisonError::into_inner);
            events.seen.count(&event);
            events.writer.write(Row::of(&event, &reasons))
        })?;
        Ok(Self {
            file: file.to_owned(),
            recording,
            events,
        })
    }

    /// Ends the watch, once the queue is empty.
    pub(super) fn finish(self) -> Result<QueueSeen, Error> {
        self.recording.stop()?;
        let failed = || Error::file(&self.file)(io::Error::other("it is written still"));
        let events = Arc::into_inner(self.events).ok_or_else(failed)?;
        let events = events.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.writer.finish().map_err(Error::file(&self.file))?;
        Ok(events.seen)
    }
}

impl QueueSeen {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Missed(number) => self.missed += number,
            Event::Packet(packet) => match packet.fate {
                Fate::Sent => self.sent += 1,
                Fate::Refused | Fate::Dropped => self.dropped += 1,
                Fate::Unseen => self.unseen += 1,
                // Those in its place are counted.
                Fate::Replaced => {}
            },
        }
    }
}
