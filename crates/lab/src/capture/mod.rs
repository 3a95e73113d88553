//! Packet traces of a device, in files that `pillion-lab analyse` and other tools read.

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

/// A running trace of a device.
#[derive(Debug)]
pub struct Capture {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<CaptureCounts>>,
}

/// Packet counts of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCounts {
    /// IP packets to the receiver.
    pub forward: u64,
    /// IP packets from the receiver.
    pub backward: u64,
    /// Packets of other protocols than IPv4.
    pub others: u64,
    /// Packets missing for lack of memory or time.
    pub missed: u32,
}

/// Interval between two reads of the ring: rare enough to cost little, frequent enough for
/// thousands of packets per second.
const READ_INTERVAL: Duration = Duration::from_millis(20);

impl Capture {
    /// Starts a trace. Packets missed from now on are counted.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Namespace`]; [`Error::System`] if the device's packets cannot be
    /// read.
    pub fn start(node: &Node, device: &str, snap_len: u32, file: &Path) -> Result<Self, Error> {
        let trace = File::create_new(file)
            .and_then(|to| Pcap::create(to, snap_len))
            .map_err(Error::file(file))?;
        let device = device.to_owned();
        let ring = node.enter(move || Ring::open(&device, snap_len as usize))?;
        let ring = ring.map_err(|source| Error::System {
            action: "capture a device's packets",
            source,
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let thread = thread::spawn(move || capture(ring, trace, snap_len as usize, &stop_flag));
        Ok(Self {
            file: file.to_owned(),
            stop,
            thread,
        })
    }

    /// Stops the trace and returns its packet counts.
    ///
    /// # Errors
    /// [`Error::File`] if the trace could not be written completely.
    pub fn finish(self) -> Result<CaptureCounts, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        let joined = joined.unwrap_or_else(|_| Err(io::Error::other("the thread failed")));
        joined.map_err(Error::file(&self.file))
    }
}

fn capture(
    mut ring: Ring,
    mut trace: Pcap<File>,
    snap_len: usize,
    stop_flag: &AtomicBool,
) -> io::Result<CaptureCounts> {
    let mut captured = CaptureCounts::default();
    loop {
        // Packets that arrived before the stop are still stored.
        let is_last = stop_flag.load(Ordering::Relaxed);
        let mut store = |frame: Frame| {
            captured.count(frame.bytes);
            let stored = frame.bytes.len().min(snap_len);
            trace.add(Frame {
                bytes: &frame.bytes[..stored],
                ..frame
            })
        };
        while let Some(stored) = ring.read(&mut store) {
            stored?;
        }
        if is_last {
            break;
        }
        thread::sleep(READ_INTERVAL);
    }
    captured.missed = ring.missed()?;
    trace.finish()?;
    Ok(captured)
}

impl CaptureCounts {
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
