use std::{fmt, io};

use super::LinkType;

/// Why nothing can be read of a trace.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {cause}")]
pub struct InputError {
    /// The file's name, or that it is standard input.
    pub name: String,
    /// What is wrong.
    #[source]
    pub cause: Unreadable,
}

/// What keeps a trace from being read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),

    /// The first bytes cannot be read or decompressed.
    #[error("cannot be read: {0}")]
    Read(io::Error),

    /// The file has not one byte.
    #[error("is empty; check that the capture ran, and wrote here")]
    Empty,

    /// The file is neither pcap nor pcapng.
    #[error(
        "is not a packet trace: it begins with {0}; expected pcap or pcapng, plain or compressed with gzip or zstd, as `tcpdump -w FILE` writes it"
    )]
    NotATrace(String),

    /// The file ends within the header of the format.
    #[error("ends after {0} bytes, within its header; copy or capture it again")]
    Short(usize),

    /// The format's version is not the one in use since 1998.
    #[error(
        "is pcap of version {major}.{minor}, and only 2.x is read; convert it with `editcap -F pcap`"
    )]
    Version {
        /// Before the dot.
        major: u16,
        /// After the dot.
        minor: u16,
    },

    /// All its packets are of a link layer that is not read.
    #[error(
        "has link type {0}, which is not read; capture at the Ethernet or IP layer, such as with `tcpdump -i any`"
    )]
    LinkType(LinkType),
}

/// Where a trace is not as it should be. What could be read of it has been given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Byte of the trace, decompressed, at which the record in question begins.
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a trace, or with a record of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The trace ends within a record.
    #[error("the trace ends within a record; all before it was read")]
    Truncated,

    /// A length cannot be right, so that the next record cannot be found.
    #[error("a record claims {0} bytes; it and all behind it was not read")]
    Length(u64),

    /// A block's two lengths differ.
    #[error("a block says {0} bytes at its start and {1} at its end; nothing behind it was read")]
    Lengths(u32, u32),

    /// The packet does not fit the block that it is in.
    #[error("a packet is longer than its block; it was not read")]
    Overlong,

    /// A section's header is not as it must be.
    #[error("a section's header is damaged, or of an unknown version; nothing behind it was read")]
    Section,

    /// A section describes more interfaces than are kept.
    #[error("a section has more than {0} interfaces; nothing behind that was read")]
    Interfaces(usize),

    /// A packet's interface is not described before it.
    #[error(
        "a packet was captured on interface {0}, which the trace does not describe; it was not read"
    )]
    UnknownInterface(u32),

    /// An interface has a link layer that is not read.
    #[error("an interface has link type {0}, which is not read; its packets were left out")]
    LinkType(LinkType),

    /// Simple Packet Blocks record no time.
    #[error("packets were recorded without their time; 1970 was taken")]
    NoTime,

    /// A packet's time is long before that of the packet in front of it.
    #[error(
        "packet {packet} is {back_s} s older than the one before it: the clock was set back, and what \
         is told across this place is wrong; analyse what is before and behind it apart"
    )]
    SetBack {
        /// The packet's number in the trace, from 1.
        packet: u64,
        /// By how many seconds, cut off.
        back_s: u64,
    },

    /// Reading or decompressing failed.
    #[error("reading failed ({0}); all before was read")]
    Read(String),
}

impl Problem {
    /// Whether the trace is damaged, incomplete or of two clocks, and not only of a kind that is not
    /// read whole.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::LinkType(_) | Self::NoTime)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}
