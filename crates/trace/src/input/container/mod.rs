//! The file formats: from bytes to frames.

mod pcap;
mod pcapng;
mod time;

use std::fmt;

use super::{LinkType, Problem, Unreadable, Warning, fields::Order, window::Window};
use pcap::Pcap;
use pcapng::PcapNg;

/// No packet and no block that is looked into is longer; a length above is damage.
const LONGEST: u32 = 16 << 20;

/// A frame as it was captured.
pub(super) struct Frame<'a> {
    /// Nanoseconds since 1970; `None` where the format does not record it.
    pub at_ns: Option<i64>,
    pub link: LinkType,
    /// The number of the interface where it was captured; 0 where the format knows of one alone.
    pub interface: u32,
    /// As much of the frame as was captured.
    pub bytes: &'a [u8],
    /// The frame's length on the wire.
    pub len: u32,
}

/// What comes next in a trace. Warnings are rare, and boxed they leave a frame as small as it is.
pub(super) enum Step<'a> {
    Frame(Frame<'a>),
    /// A packet that cannot be read, and why.
    Lost(Box<Warning>),
    /// Something to know that is not a packet.
    Note(Box<Warning>),
    End,
}

/// A trace's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// pcap, with times in microseconds or nanoseconds.
    Pcap {
        /// Times are in nanoseconds.
        nanoseconds: bool,
    },
    /// pcapng.
    PcapNg,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap { nanoseconds: false } => "pcap, microseconds",
            Self::Pcap { nanoseconds: true } => "pcap, nanoseconds",
            Self::PcapNg => "pcapng",
        })
    }
}

/// Reads frames in one of the formats.
pub(super) enum Reader {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl Reader {
    /// Recognises the format and reads its header.
    pub fn new(window: &mut Window) -> Result<Self, Unreadable> {
        if !window.holds(4).map_err(Unreadable::Read)? {
            return Err(match window.bytes() {
                [] => Unreadable::Empty,
                short => Unreadable::NotATrace(hex(short)),
            });
        }
        let magic = window.bytes().first_chunk().copied().unwrap_or_default();
        if magic == pcapng::MAGIC {
            return PcapNg::new(window).map(Self::PcapNg);
        }
        match Pcap::new(window, magic) {
            Some(pcap) => pcap.map(Self::Pcap),
            None => Err(Unreadable::NotATrace(hex(&magic))),
        }
    }

    pub fn container(&self) -> Container {
        match self {
            Self::Pcap(pcap) => pcap.container(),
            Self::PcapNg(_) => Container::PcapNg,
        }
    }

    /// The next frame; an error is where the trace cannot be followed any further.
    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<Step<'w>, Box<Warning>> {
        match self {
            Self::Pcap(pcap) => pcap.next(window),
            Self::PcapNg(pcapng) => pcapng.next(window),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

impl Problem {
    fn at(self, offset: u64) -> Box<Warning> {
        Box::new(Warning {
            offset,
            problem: self,
        })
    }
}

/// Reads until the window holds `len` bytes of the record that begins at `offset`.
#[inline]
fn whole(window: &mut Window, len: usize, offset: u64) -> Result<(), Box<Warning>> {
    match window.holds(len) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::Truncated.at(offset)),
        Err(error) => Err(failed(&error, offset)),
    }
}

#[cold]
fn failed(error: &std::io::Error, offset: u64) -> Box<Warning> {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Problem::Truncated,
        _ => Problem::Read(error.to_string()),
    }
    .at(offset)
}

/// Whether a record begins here, of which the window then holds the first `len` bytes, or the
/// trace ends.
#[inline]
fn begins(window: &mut Window, len: usize, offset: u64) -> Result<bool, Box<Warning>> {
    match window.holds(len) {
        Ok(true) => Ok(true),
        Ok(false) if window.bytes().is_empty() => Ok(false),
        Ok(false) => Err(Problem::Truncated.at(offset)),
        Err(error) => Err(failed(&error, offset)),
    }
}
