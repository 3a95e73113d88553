//! Traces of what passes a device, in files that `pillion-lab analyse` and others read.

mod pcap;
mod ring;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::testbed::{Node, RECEIVER};
use pcap::{Frame, Pcap};
use ring::Ring;

/// A trace being taken at a device.
#[derive(Debug)]
pub struct Capture {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Captured>>,
}

/// What a trace holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// IP packets to the receiver.
    pub forward: u64,
    /// IP packets from the receiver.
    pub backward: u64,
    /// Packets other than IP's.
    pub others: u64,
    /// Packets that are missing, for want of memory or time.
    pub missed: u32,
}

/// How often packets are fetched: seldom enough to cost little, often enough that thousands a
/// second find room.
const FETCH_EVERY: Duration = Duration::from_millis(20);

impl Capture {
    /// Begins a trace; from now on nothing is missed without being counted.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Namespace`]; [`Error::System`] if the device cannot be watched.
    pub fn start(node: &Node, device: &str, snap: u32, file: &Path) -> Result<Self, Error> {
        let trace = File::create_new(file)
            .and_then(|to| Pcap::begin(to, snap))
            .map_err(Error::file(file))?;
        let device = device.to_owned();
        let ring = node.enter(move || Ring::open(&device, snap as usize))?;
        let ring = ring.map_err(|source| Error::System {
            action: "watch a device's packets",
            source,
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = thread::spawn(move || capture(ring, trace, snap as usize, &ended));
        Ok(Self {
            file: file.to_owned(),
            stop,
            thread,
        })
    }

    /// Ends the trace, and says what it holds.
    ///
    /// # Errors
    /// [`Error::File`] if not all could be written.
    pub fn finish(self) -> Result<Captured, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        let joined = joined.unwrap_or_else(|_| Err(io::Error::other("the thread failed")));
        joined.map_err(Error::file(&self.file))
    }
}

fn capture(
    mut ring: Ring,
    mut trace: Pcap<File>,
    snap: usize,
    ended: &AtomicBool,
) -> io::Result<Captured> {
    let mut captured = Captured::default();
    loop {
        // What came before the end is still taken.
        let last = ended.load(Ordering::Relaxed);
        let mut keep = |frame: Frame| {
            captured.count(frame.bytes);
            let kept = frame.bytes.len().min(snap);
            trace.add(Frame {
                bytes: &frame.bytes[..kept],
                ..frame
            })
        };
        while let Some(kept) = ring.read(&mut keep) {
            kept?;
        }
        if last {
            break;
        }
        thread::sleep(FETCH_EVERY);
    }
    captured.missed = ring.missed()?;
    trace.finish()?;
    Ok(captured)
}

impl Captured {
    fn count(&mut self, frame: &[u8]) {
        const IPV4: &[u8] = &[8, 0];
        let is_ip = frame.get(12..14) == Some(IPV4);
        let to_receiver = frame.get(30..34) == Some(&RECEIVER.octets());
        match (is_ip, to_receiver) {
            (false, _) => self.others += 1,
            (true, true) => self.forward += 1,
            (true, false) => self.backward += 1,
        }
    }
}
