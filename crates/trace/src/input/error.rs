use std::path::PathBuf;
use std::{fmt, io};

use super::LinkType;

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {cause}")]
pub struct InputError {
    /// The file's name, or "standard input".
    pub name: String,
    /// The reason.
    #[source]
    pub cause: InputErrorKind,
}

/// Reasons why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputErrorKind {
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),

    /// The first bytes cannot be read or decompressed.
    #[error("cannot be read: {0}")]
    Read(io::Error),

    /// The file is empty.
    #[error("is empty: check that the capture ran and wrote to this file")]
    Empty,

    /// The file is neither pcap nor pcapng.
    #[error(
        "is not a packet trace: starts with {0}; expected pcap or pcapng, plain or compressed with gzip or zstd, as from `tcpdump -w FILE`"
    )]
    NotATrace(String),

    /// The file is compressed with an unsupported program.
    #[error("is compressed with {0}, which is not supported: decompress it, as with `{1} FILE`")]
    Compression(&'static str, &'static str),

    /// The file ends within the header of the format.
    #[error("ends after {0} bytes, within its header: copy or capture it again")]
    Short(usize),

    /// The format's version is not the one in use since 1998.
    #[error(
        "is pcap version {major}.{minor}, but only 2.x is supported: convert it with `editcap -F pcap`"
    )]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },

    /// All its packets have an unsupported link layer.
    #[error(
        "has link type {0}, which is not supported: capture at the Ethernet or IP layer, as with `tcpdump -i any`"
    )]
    LinkType(LinkType),
}

/// A problem within a trace. Everything readable has been returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The file, if the capture has several.
    pub file: Option<PathBuf>,
    /// Byte offset of the record, after decompression.
    pub offset: u64,
    /// The problem.
    pub problem: Problem,
}

/// Problems of a trace or a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The trace ends within a record.
    #[error("the trace ends within a record; all earlier records were read")]
    Truncated,

    /// A length is impossible, so the next record cannot be found.
    #[error("impossible record length {0}: this record and all later ones were not read")]
    Length(u64),

    /// A block's two lengths differ.
    #[error(
        "a block's two lengths differ ({0} and {1} bytes): this block and all later ones were not read"
    )]
    Lengths(u32, u32),

    /// The packet does not fit the block that it is in.
    #[error("a packet is longer than its block: it was skipped")]
    Overlong,

    /// A section header is invalid.
    #[error("a section header is damaged or of an unknown version: nothing after it was read")]
    Section,

    /// A section has more interfaces than supported.
    #[error("a section has more than {0} interfaces: nothing after them was read")]
    Interfaces(usize),

    /// A packet's interface has no description before it.
    #[error(
        "a packet was captured on interface {0}, which the trace does not describe: it was skipped"
    )]
    UnknownInterface(u32),

    /// An interface has an unsupported link layer.
    #[error("an interface has link type {0}, which is not supported: its packets were skipped")]
    LinkType(LinkType),

    /// Simple Packet Blocks record no time.
    #[error("packets were recorded without times: 1970 was used")]
    NoTime,

    /// A capture time does not fit into 64 bits of nanoseconds.
    #[error(
        "a capture time is before 1677 or after 2262: such packets were skipped; check the \
         interface's time unit (if_tsresol, if_tsoffset)"
    )]
    TimeRange,

    /// The fractions of pcap times have another unit than the magic number.
    #[error(
        "fractions of a second exceed their unit, microseconds by the magic number: nanoseconds \
         were used"
    )]
    NanosecondFractions,

    /// A fraction of a pcap time is beyond its second.
    #[error("a fraction of a second exceeds its unit: the second's end was used for such times")]
    Fraction,

    /// A packet is much older than the previous one.
    #[error(
        "packet {packet} is {back_s} s older than the one before it: the clock was set back, and \
         results across this point are wrong; analyse the parts before and after it separately"
    )]
    SetBack {
        /// The packet's number in the trace, from 1.
        packet: u64,
        /// Seconds, rounded down.
        back_s: u64,
    },

    /// Reading or decompressing failed.
    #[error("reading failed ({0}); all earlier records were read")]
    Read(String),
}

impl Problem {
    /// Whether the trace is damaged, incomplete or of two clocks. False if it only contains
    /// unsupported data.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Self::LinkType(_) | Self::NoTime | Self::NanosecondFractions
        )
    }
}

impl Warning {
    pub(super) fn new(offset: u64, problem: Problem) -> Self {
        Self {
            file: None,
            offset,
            problem,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "in {}, ", file.display())?;
        }
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}
