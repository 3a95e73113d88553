use std::io::{self, BufWriter, Write};

/// A packet seen at a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// Time of the packet: `CLOCK_REALTIME`, seconds and nanoseconds.
    pub(super) at: (u32, u32),
    /// The stored part of the packet, from the Ethernet header.
    pub(super) bytes: &'a [u8],
    /// The packet's length on the wire in bytes.
    pub(super) length: u32,
}

/// Writes a trace of Ethernet frames with nanosecond timestamps.
pub(super) struct Pcap<W: Write>(BufWriter<W>);

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const LINKTYPE_ETHERNET: u32 = 1;

impl<W: Write> Pcap<W> {
    /// Creates a trace that stores at most `snap_len` bytes of each packet.
    pub(super) fn create(to: W, snap_len: u32) -> io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        to.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        for half in VERSION {
            to.write_all(&half.to_le_bytes())?;
        }
        for word in [0, 0, snap_len, LINKTYPE_ETHERNET] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(Self(to))
    }

    pub(super) fn add(&mut self, frame: Frame) -> io::Result<()> {
        let (seconds, nanoseconds) = frame.at;
        let stored = frame.bytes.len() as u32;
        for word in [seconds, nanoseconds, stored, frame.length] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(frame.bytes)
    }

    /// Flushes the trace to its file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}
