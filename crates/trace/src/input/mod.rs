//! Reading packet traces: pcap and pcapng, plain or compressed, from a file or a pipe.
//!
//! ```no_run
//! # use pillion_trace::input;
//! let mut input = input::open("server.pcap".as_ref())?;
//! for packet in &mut input {
//!     println!("{} -> {}: {} bytes", packet.from, packet.to, packet.payload_len);
//! }
//! for warning in input.warnings() {
//!     eprintln!("{warning}");
//! }
//! # Ok::<(), input::InputError>(())
//! ```

mod bytes;
mod container;
mod error;
mod headers;

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Endpoint;
use bytes::{Window, unpack};
use container::{Frame, Reader, Step};
use headers::Skip;

pub use bytes::Compression;
pub use container::{Container, Format};
pub use error::{InputError, Problem, Unreadable, Warning};
pub use headers::LinkType;

/// Warnings kept; a trace that is damaged all over says no more by its hundredth.
const MOST_WARNINGS: usize = 100;

/// A trace that is being read: gives its TCP segments in the file's order, in bounded memory.
pub struct Input {
    window: Window,
    reader: Reader,
    filter: Filter,
    counts: Counts,
    warnings: Vec<Warning>,
    format: Format,
    progress: Progress,
    /// First and last time of a packet.
    span_ns: Option<(i64, i64)>,
    /// The time of the packet before the next one.
    before_ns: i64,
    ended: bool,
}

/// Opens a trace; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is not a trace, or is of a link layer that is not read.
pub fn open(path: &Path) -> Result<Input, InputError> {
    if path == Path::new("-") {
        return Input::new("standard input", io::stdin());
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => {
            let len = file
                .metadata()
                .ok()
                .filter(std::fs::Metadata::is_file)
                .map(|metadata| metadata.len());
            Input::of_len(&name, file, len)
        }
        Err(error) => Err(InputError {
            name,
            cause: Unreadable::Open(error),
        }),
    }
}

impl Input {
    /// Reads the trace that `source` gives; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(name: &str, source: impl Read + Send + 'static) -> Result<Self, InputError> {
        Self::of_len(name, source, None)
    }

    fn of_len(
        name: &str,
        source: impl Read + Send + 'static,
        len: Option<u64>,
    ) -> Result<Self, InputError> {
        let unreadable = |cause| InputError {
            name: name.to_owned(),
            cause,
        };
        let progress = Progress::new(len);
        let source = Metered::new(source, &progress);
        let (source, compression) =
            unpack(source).map_err(|error| unreadable(Unreadable::Read(error)))?;
        let mut window = Window::new(source);
        let reader = Reader::new(&mut window).map_err(unreadable)?;
        let format = Format::new(reader.container(), compression);
        Ok(Self {
            window,
            reader,
            filter: Filter::default(),
            counts: Counts::default(),
            warnings: Vec::new(),
            format,
            progress,
            span_ns: None,
            before_ns: i64::MIN,
            ended: false,
        })
    }

    /// Gives only the packets that `filter` takes, from now on.
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// What became of the packets read so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Where the trace is damaged, as far as it has been read: the first hundred places.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Container, compression, and the link types of the packets read so far.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// How far the file has been read; can be kept and asked while the trace is being read.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The earliest and the latest time of a packet so far, TCP or not, in nanoseconds since 1970;
    /// their difference is the trace's duration.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        self.span_ns
    }

    #[cold]
    fn warn(warnings: &mut Vec<Warning>, warning: Warning) {
        if warnings.len() < MOST_WARNINGS {
            warnings.push(warning);
        }
    }
}

impl Iterator for Input {
    type Item = crate::Packet;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let offset = self.window.offset();
            match self.reader.next(&mut self.window) {
                Ok(Step::Frame(frame)) => {
                    self.counts.packets += 1;
                    note_time(&mut self.span_ns, &frame);
                    if let Some(back_s) = set_back(&mut self.before_ns, &frame) {
                        let packet = self.counts.packets;
                        let problem = Problem::SetBack { packet, back_s };
                        Self::warn(&mut self.warnings, Warning { offset, problem });
                    }
                    self.format.add(frame.link);
                    match headers::read(&frame, self.counts.packets, &self.filter) {
                        Ok(segment) => {
                            self.counts.tcp += 1;
                            self.counts.options_cut += u64::from(segment.options_cut);
                            self.counts.first_fragments += u64::from(segment.first_fragment);
                            return Some(segment.packet);
                        }
                        Err(skip) => self.counts.skipped(skip),
                    }
                }
                Ok(Step::Lost(warning)) => {
                    self.counts.packets += 1;
                    self.counts.skipped(Skip::Damaged);
                    Self::warn(&mut self.warnings, *warning);
                }
                Ok(Step::Note(warning)) => Self::warn(&mut self.warnings, *warning),
                Ok(Step::End) => self.ended = true,
                Err(warning) => {
                    Self::warn(&mut self.warnings, *warning);
                    self.ended = true;
                }
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Input {}

/// What capturing puts out of order, on several processors or interfaces, is out of it by less.
const SET_BACK_NS: i64 = 1_000_000_000;

/// By how many seconds the clock was set back between the packet before this one and this one.
#[inline]
fn set_back(before_ns: &mut i64, frame: &Frame) -> Option<u64> {
    let at_ns = frame.at_ns?;
    let back_ns = before_ns.saturating_sub(at_ns);
    *before_ns = at_ns;
    (back_ns >= SET_BACK_NS).then_some((back_ns / 1_000_000_000) as u64)
}

#[inline]
fn note_time(span_ns: &mut Option<(i64, i64)>, frame: &Frame) {
    if let Some(at) = frame.at_ns {
        let (first, last) = span_ns.get_or_insert((at, at));
        *first = at.min(*first);
        *last = at.max(*last);
    }
}

/// Which packets of a trace are given; each condition that is set has to hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// One end has one of these addresses; empty: any.
    addresses: Vec<[u8; 16]>,
    /// One end has one of these ports; empty: any.
    ports: Vec<u16>,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
}

impl Filter {
    /// Takes packets from or to this address, besides those already taken.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.addresses
            .push(Endpoint::from(SocketAddr::new(address, 0)).address);
        self
    }

    /// Takes packets from or to this port, besides those already taken.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// Leaves out what was captured before, in nanoseconds since 1970.
    #[must_use]
    pub fn from(mut self, ns: i64) -> Self {
        self.from_ns = Some(ns);
        self
    }

    /// Leaves out what was captured then or later, in nanoseconds since 1970.
    #[must_use]
    pub fn until(mut self, ns: i64) -> Self {
        self.until_ns = Some(ns);
        self
    }

    #[inline]
    fn takes_time(&self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from| ns >= from) && self.until_ns.is_none_or(|until| ns < until)
    }

    #[inline]
    fn takes_ends(&self, from: &Endpoint, to: &Endpoint) -> bool {
        let ends = [from, to];
        (self.addresses.is_empty() || ends.iter().any(|end| self.addresses.contains(&end.address)))
            && (self.ports.is_empty() || ends.iter().any(|end| self.ports.contains(&end.port)))
    }
}

/// What became of a trace's packets. All but the last two exclude each other and add up to
/// `packets`, once the trace has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// In the trace, of any kind.
    pub packets: u64,
    /// TCP segments given.
    pub tcp: u64,
    /// On an interface whose link type is not read.
    pub other_link: u64,
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// IP, with something other than TCP in it.
    pub not_tcp: u64,
    /// IP fragments with TCP in them, without its header.
    pub fragments: u64,
    /// Captured too short for the TCP header.
    pub cut: u64,
    /// With headers that contradict themselves or the packet's length.
    pub damaged: u64,
    /// Left out by the filter.
    pub filtered: u64,
    /// Of those given: captured too short for the TCP options, which are then incomplete.
    pub options_cut: u64,
    /// Of those given: the first fragment of an IP packet, whose payload goes on in others.
    pub first_fragments: u64,
}

impl Counts {
    fn skipped(&mut self, why: Skip) {
        *match why {
            Skip::OtherLink => &mut self.other_link,
            Skip::NotIp => &mut self.not_ip,
            Skip::NotTcp => &mut self.not_tcp,
            Skip::Fragment => &mut self.fragments,
            Skip::Cut => &mut self.cut,
            Skip::Damaged => &mut self.damaged,
            Skip::Filtered => &mut self.filtered,
        } += 1;
    }
}

/// How much of a trace's file has been read, as it lies on disk.
#[derive(Debug, Clone)]
pub struct Progress {
    read: Arc<AtomicU64>,
    len: Option<u64>,
}

impl Progress {
    fn new(len: Option<u64>) -> Self {
        Self {
            read: Arc::default(),
            len,
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file when it was opened; `None` for a pipe.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.len
    }
}

/// A source whose bytes are counted.
struct Metered<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R> Metered<R> {
    pub fn new(source: R, progress: &Progress) -> Self {
        Self {
            source,
            read: Arc::clone(&progress.read),
        }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
