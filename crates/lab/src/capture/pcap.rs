use std::io::{self, BufWriter, Write};

/// A packet as it passed a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// When the packet passed: `CLOCK_REALTIME`, seconds and nanoseconds.
    pub(super) at: (u32, u32),
    /// What is kept of the packet, from the Ethernet header on.
    pub(super) bytes: &'a [u8],
    /// The packet's length on the wire in bytes.
    pub(super) length: u32,
}

/// Writes a trace of Ethernet frames, with times in nanoseconds.
pub(super) struct Pcap<W: Write>(BufWriter<W>);

const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const ETHERNET: u32 = 1;

impl<W: Write> Pcap<W> {
    /// Begins a trace that keeps at most `snap` bytes of a packet.
    pub(super) fn begin(to: W, snap: u32) -> io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        to.write_all(&NANOSECONDS.to_le_bytes())?;
        for half in VERSION {
            to.write_all(&half.to_le_bytes())?;
        }
        for word in [0, 0, snap, ETHERNET] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(Self(to))
    }

    pub(super) fn add(&mut self, frame: Frame) -> io::Result<()> {
        let (seconds, nanoseconds) = frame.at;
        let kept = frame.bytes.len() as u32;
        for word in [seconds, nanoseconds, kept, frame.length] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(frame.bytes)
    }

    /// Writes out what of the trace is still in memory.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}
