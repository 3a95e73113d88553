use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pillion_queue::{Description, Event, EventWriter, Fate, Reasons, Recording, Target};
use serde::{Deserialize, Serialize};

use crate::testbed::{OUT, Testbed};
use crate::{Error, kernel_release};

/// The bottleneck's queue being watched.
#[derive(Debug)]
pub(super) struct QueueWatch {
    file: PathBuf,
    recording: Recording,
    events: Arc<Mutex<Events>>,
}

#[derive(Debug)]
struct Events {
    writer: EventWriter<File>,
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
    pub(super) fn start(testbed: &Testbed, file: &Path) -> Result<Self, Error> {
        let target = testbed.router.enter(|| Target::find(OUT))??;
        let description = Description {
            device: OUT.to_owned(),
            kernel: kernel_release(),
            reasons: Reasons::of_this_kernel(),
        };
        let writer = File::create_new(file).and_then(|to| EventWriter::new(to, &description));
        let events = Arc::new(Mutex::new(Events {
            writer: writer.map_err(Error::file(file))?,
            seen: QueueSeen::default(),
        }));
        let shared = Arc::clone(&events);
        let recording = Recording::start(&target, move |event| {
            let mut events = shared.lock().unwrap_or_else(PoisonError::into_inner);
            events.seen.count(&event);
            events.writer.write(&event)
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
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.writer.flush().map_err(Error::file(&self.file))?;
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
