use std::io;

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
