//! The file formats: from bytes to frames.
//!
//! Own code, because the crate pcap-parser would replace only about 200 lines. Its errors have no
//! byte offset, and it stores every block before it skips it. if_tsresol, link types, lengths and
//! recoverable warnings would still need code here.

mod pcapng;

use std::fmt;

use super::bytes::{ByteOrder, FieldReader, Window};
use super::{Compression, InputErrorKind, LinkType, Problem, Warning};
use pcapng::PcapNg;

/// Maximum length of a packet and of a parsed block; a larger length is damage.
const MAX_RECORD: u32 = 16 << 20;

/// A captured frame.
pub(super) struct Frame<'a> {
    /// Nanoseconds since 1970; `None` where the format does not record it.
    pub at_ns: Option<i64>,
    pub link: LinkType,
    /// The number of the capturing interface; 0 if the format has only one.
    pub interface: u32,
    /// The captured part of the frame.
    pub bytes: &'a [u8],
    /// The frame's length on the wire.
    pub len: u32,
}

/// The next item of a trace. Warnings are rare, and boxing them keeps frames small.
pub(super) enum ReadStep<'a> {
    Frame(Frame<'a>),
    /// An unreadable packet, and the reason.
    Lost(Box<Warning>),
    /// A warning that is not about a packet.
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
    /// Detects the format and reads its header.
    pub fn new(window: &mut Window) -> Result<Self, InputErrorKind> {
        if !window.fill_to(4).map_err(InputErrorKind::Read)? {
            return Err(match window.bytes() {
                [] => InputErrorKind::Empty,
                short => InputErrorKind::NotATrace(hex(short)),
            });
        }
        let magic = window.bytes().first_chunk().copied().unwrap_or_default();
        if magic == pcapng::MAGIC {
            return PcapNg::new(window).map(Self::PcapNg);
        }
        match Pcap::new(window, magic) {
            Some(pcap) => pcap.map(Self::Pcap),
            None => {
                // A shorter file cannot start with a longer magic number.
                let _ = window.fill_to(6);
                Err(not_a_trace(window.bytes(), &magic))
            }
        }
    }

    pub fn container(&self) -> Container {
        match self {
            Self::Pcap(pcap) => pcap.container(),
            Self::PcapNg(_) => Container::PcapNg,
        }
    }

    /// The next frame; an error means that reading cannot continue.
    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<ReadStep<'w>, Box<Warning>> {
        match self {
            Self::Pcap(pcap) => pcap.next(window),
            Self::PcapNg(pcapng) => pcapng.next(window),
        }
    }
}

/// First bytes of compressed files, the program, and the command that decompresses one.
const COMPRESSED: [(&[u8], &str, &str); 9] = [
    (b"\xfd7zXZ\0", "xz", "xz -d"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -d"),
    (&[0x02, 0x21, 0x4c, 0x18], "lz4", "lz4 -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (&[0x1f, 0x9d], "compress", "gzip -d"),
    (b"LZIP", "lzip", "lzip -d"),
    (&[0x89, b'L', b'Z', b'O'], "lzop", "lzop -d"),
    (&[0x5d, 0, 0], "lzma", "xz -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// The error for a file with these first bytes.
fn not_a_trace(start: &[u8], magic: &[u8]) -> InputErrorKind {
    let mut compressed = COMPRESSED.iter().filter(|it| start.starts_with(it.0));
    match compressed.next() {
        Some((_, program, command)) => InputErrorKind::Compression(program, command),
        None => InputErrorKind::NotATrace(hex(magic)),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

impl Problem {
    fn at(self, offset: u64) -> Box<Warning> {
        Box::new(Warning::new(offset, self))
    }
}

/// Reads until the window has `len` bytes of the record at `offset`.
#[inline]
fn require(window: &mut Window, len: usize, offset: u64) -> Result<(), Box<Warning>> {
    match window.fill_to(len) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::Truncated.at(offset)),
        Err(error) => Err(read_failure(&error, offset)),
    }
}

#[cold]
fn read_failure(error: &std::io::Error, offset: u64) -> Box<Warning> {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Problem::Truncated,
        _ => Problem::Read(error.to_string()),
    }
    .at(offset)
}

/// Reads the first `len` bytes of the next record; false at the end of the trace.
#[inline]
fn has_record(window: &mut Window, len: usize, offset: u64) -> Result<bool, Box<Warning>> {
    match window.fill_to(len) {
        Ok(true) => Ok(true),
        Ok(false) if window.bytes().is_empty() => Ok(false),
        Ok(false) => Err(Problem::Truncated.at(offset)),
        Err(error) => Err(read_failure(&error, offset)),
    }
}

/// Format of a trace file. Displayed as in `pcapng, gzip, Ethernet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    container: Container,
    compression: Option<Compression>,
    link_types: Vec<LinkType>,
}

impl Format {
    pub(super) fn new(container: Container, compression: Option<Compression>) -> Self {
        Self {
            container,
            compression,
            link_types: Vec::new(),
        }
    }

    /// Records a packet's link type.
    #[inline]
    pub(super) fn add(&mut self, link: LinkType) {
        if self.link_types.first() == Some(&link) {
            return;
        }
        if !self.link_types.contains(&link) {
            self.link_types.push(link);
        }
    }

    /// The file format.
    #[must_use]
    pub fn container(&self) -> Container {
        self.container
    }

    /// Compression, if any.
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Link types of the packets, in order of appearance.
    #[must_use]
    pub fn link_types(&self) -> &[LinkType] {
        &self.link_types
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.container.fmt(f)?;
        match self.compression {
            None => {}
            Some(Compression::Gzip) => f.write_str(", gzip")?,
            Some(Compression::Zstd) => f.write_str(", zstd")?,
        }
        for link in &self.link_types {
            write!(f, ", {link}")?;
        }
        Ok(())
    }
}

const MICROSECONDS_PER_S: u32 = 1_000_000;
const NANOSECONDS_PER_S: u32 = 1_000_000_000;

const HEADER: usize = 24;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Kuznetsov's libpcap of the 1990s: eight more bytes in each record header.
const LONG_RECORDS: u32 = 0xa1b2_cd34;

/// Bytes of the first records that show the unit of the fractions.
const UNIT_BYTES: usize = 64 << 10;

/// pcap (draft-ietf-opsawg-pcap): a header, then records.
pub(crate) struct Pcap {
    order: ByteOrder,
    ns_per_tick: u32,
    record_header: usize,
    link: LinkType,
    /// A problem to report before the next record.
    note: Option<Problem>,
    warned_fraction: bool,
}

impl Pcap {
    /// Reads the header; `None` if `magic` is not pcap's.
    pub fn new(window: &mut Window, magic: [u8; 4]) -> Option<Result<Self, InputErrorKind>> {
        let (order, (ns_per_tick, record_header)) = [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find_map(|order| Some((order, variant(order.u32(magic))?)))?;
        Some(read_header(window, order).map(|link| {
            let mut pcap = Self {
                order,
                ns_per_tick,
                record_header,
                link,
                note: None,
                warned_fraction: false,
            };
            if ns_per_tick > 1 && pcap.has_nanoseconds(window) {
                pcap.ns_per_tick = 1;
                pcap.note = Some(Problem::NanosecondFractions);
            }
            pcap
        }))
    }

    /// Whether the first fractions are nanoseconds, although the magic number means microseconds:
    /// more of them exceed a second of microseconds than lie within it. Zeros fit both.
    fn has_nanoseconds(&self, window: &mut Window) -> bool {
        // A failure to read is reported with the record.
        let _ = window.fill_to(UNIT_BYTES);
        let mut rest = window.bytes();
        let (mut within, mut beyond) = (0, 0);
        while let Some([_, ticks, captured, _]) = FieldReader::new(rest, self.order).four_u32() {
            match ticks {
                0 => {}
                1..MICROSECONDS_PER_S => within += 1,
                MICROSECONDS_PER_S..NANOSECONDS_PER_S => beyond += 1,
                _ => return false,
            }
            let record = self.record_header.saturating_add(captured as usize);
            rest = rest.get(record..).unwrap_or_default();
        }
        beyond > within
    }

    /// The fraction of a second in nanoseconds. One beyond the second is damaged, and counts as the
    /// second's end.
    #[inline]
    fn fraction_ns(&self, ticks: u32) -> (i64, bool) {
        let per_second = NANOSECONDS_PER_S / self.ns_per_tick;
        let valid = ticks.min(per_second - 1);
        (
            i64::from(valid) * i64::from(self.ns_per_tick),
            valid == ticks,
        )
    }

    pub fn container(&self) -> Container {
        Container::Pcap {
            nanoseconds: self.ns_per_tick == 1,
        }
    }

    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<ReadStep<'w>, Box<Warning>> {
        let offset = window.offset();
        if let Some(note) = self.note.take() {
            return Ok(ReadStep::Note(note.at(offset)));
        }
        if !has_record(window, self.record_header, offset)? {
            return Ok(ReadStep::End);
        }
        let mut fields = FieldReader::new(window.bytes(), self.order);
        let Some([seconds, ticks, captured, len]) = fields.four_u32() else {
            return Err(Problem::Truncated.at(offset));
        };
        // Exceeding the header's snapshot length is not damage: some programs write it wrong.
        if captured > MAX_RECORD {
            return Err(Problem::Length(captured.into()).at(offset));
        }
        let record = self.record_header + captured as usize;
        require(window, record, offset)?;
        let (fraction_ns, valid) = self.fraction_ns(ticks);
        if !valid && !self.warned_fraction {
            self.warned_fraction = true;
            return Ok(ReadStep::Note(Problem::Fraction.at(offset)));
        }
        let bytes = window.take(record);
        Ok(ReadStep::Frame(Frame {
            at_ns: Some(i64::from(seconds) * i64::from(NANOSECONDS_PER_S) + fraction_ns),
            link: self.link,
            interface: 0,
            bytes: bytes.get(self.record_header..).unwrap_or_default(),
            len,
        }))
    }
}

/// Nanoseconds per tick, and bytes per record header.
fn variant(magic: u32) -> Option<(u32, usize)> {
    match magic {
        MICROSECONDS => Some((1000, 16)),
        NANOSECONDS => Some((1, 16)),
        LONG_RECORDS => Some((1000, 24)),
        _ => None,
    }
}

fn read_header(window: &mut Window, order: ByteOrder) -> Result<LinkType, InputErrorKind> {
    if !window.fill_to(HEADER).map_err(InputErrorKind::Read)? {
        return Err(InputErrorKind::Short(window.bytes().len()));
    }
    let mut fields = FieldReader::new(window.take(HEADER), order);
    let _magic = fields.u32();
    let (major, minor) = (
        fields.u16().unwrap_or_default(),
        fields.u16().unwrap_or_default(),
    );
    if major != 2 {
        return Err(InputErrorKind::Version { major, minor });
    }
    let _zone_accuracy_snaplen: Option<[u8; 12]> = fields.array();
    // The upper half contains the length of the frames' checksums.
    let link = LinkType(fields.u32().unwrap_or_default() as u16);
    if link.is_supported() {
        Ok(link)
    } else {
        Err(InputErrorKind::LinkType(link))
    }
}
