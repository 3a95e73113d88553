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
mod link_type;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Endpoint;
use bytes::{Window, unpack};
use container::{Frame, ReadStep, Reader};
use headers::SkipReason;

pub use bytes::Compression;
pub use container::{Container, Format};
pub use error::{InputError, InputErrorKind, Problem, Warning};
pub use link_type::LinkType;

/// Maximum number of stored warnings.
const MAX_WARNINGS: usize = 100;

/// A trace being read: yields its TCP segments in file order, in bounded memory.
pub struct Input {
    /// The file being read.
    file: PathBuf,
    /// Later files of the same capture.
    later: VecDeque<PathBuf>,
    /// Whether the capture has several files.
    has_parts: bool,
    overlap: Option<Overlap>,
    window: Window,
    reader: Reader,
    filter: Filter,
    counts: InputCounts,
    warnings: Vec<Warning>,
    format: Format,
    progress: Progress,
    /// Earliest and latest packet time.
    span_ns: Option<(i64, i64)>,
    /// Time of the first returned packet.
    start_ns: Option<i64>,
    /// Time of the previous packet.
    before_ns: i64,
    /// The file before this one, until its first packet.
    earlier: Option<PathBuf>,
    ended: bool,
}

/// Two files of one capture whose times overlap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} starts before the end of {}: files of one capture follow each other",
    .later.display(), .earlier.display()
)]
pub struct Overlap {
    /// The file with the earlier start.
    pub earlier: PathBuf,
    /// The other file.
    pub later: PathBuf,
}

/// Opens a trace; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is not a trace, or has an unsupported link layer.
pub fn open(path: &Path) -> Result<Input, InputError> {
    if path == Path::new("-") {
        return Input::new("standard input", io::stdin());
    }
    let (file, len) = open_file(path)?;
    Input::with_progress(path, file, Progress::new(len))
}

/// Opens the files of one capture, as from a ring buffer (`tcpdump -C`, `-G`, `-W`). They are read
/// in the order of their first packets.
///
/// # Errors
/// As [`open`], for any of the files.
pub fn open_parts(paths: &[PathBuf]) -> Result<Input, InputError> {
    if let [path] = paths {
        return open(path);
    }
    let mut parts = Vec::new();
    let mut total = Some(0);
    for path in paths {
        let mut part = open(path)?;
        total = total.zip(part.progress.len).map(|(sum, len)| sum + len);
        part.next();
        let start_ns = part.span_ns.map_or(i64::MAX, |span| span.0);
        parts.push((start_ns, path));
    }
    parts.sort();
    let mut later: VecDeque<_> = parts.into_iter().map(|(_, path)| path.clone()).collect();
    let first = later.pop_front().unwrap_or_default();
    let (file, _) = open_file(&first)?;
    let input = Input::with_progress(&first, file, Progress::new(total))?;
    Ok(Input {
        later,
        has_parts: true,
        ..input
    })
}

fn open_file(path: &Path) -> Result<(File, Option<u64>), InputError> {
    let file = File::open(path).map_err(|error| InputError {
        name: path.display().to_string(),
        cause: InputErrorKind::Open(error),
    })?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file);
    Ok((file, metadata.map(|metadata| metadata.len())))
}

impl Input {
    /// Reads the trace in `source`; errors use `name`.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(name: &str, source: impl Read + Send + 'static) -> Result<Self, InputError> {
        Self::with_progress(name.as_ref(), source, Progress::new(None))
    }

    fn with_progress(
        file: &Path,
        source: impl Read + Send + 'static,
        progress: Progress,
    ) -> Result<Self, InputError> {
        let unreadable = |cause| InputError {
            name: file.display().to_string(),
            cause,
        };
        let source = CountingReader::new(source, &progress);
        let (source, compression) =
            unpack(source).map_err(|error| unreadable(InputErrorKind::Read(error)))?;
        let mut window = Window::new(source);
        let reader = Reader::new(&mut window).map_err(unreadable)?;
        let format = Format::new(reader.container(), compression);
        Ok(Self {
            file: file.to_owned(),
            later: VecDeque::new(),
            has_parts: false,
            overlap: None,
            window,
            reader,
            filter: Filter::default(),
            counts: InputCounts::default(),
            warnings: Vec::new(),
            format,
            progress,
            span_ns: None,
            start_ns: None,
            before_ns: i64::MIN,
            earlier: None,
            ended: false,
        })
    }

    /// Yields only packets that `filter` accepts, from now on.
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Packets read so far, by result.
    #[must_use]
    pub fn counts(&self) -> &InputCounts {
        &self.counts
    }

    /// The first hundred warnings so far.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Container, compression, and the link types of the packets read so far.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Read progress; can be cloned and queried during reading.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The earliest and latest time of any packet so far, in nanoseconds since 1970. Their
    /// difference is the trace's duration.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        self.span_ns
    }

    /// The time of the first TCP packet, in nanoseconds since 1970.
    #[must_use]
    pub fn start_ns(&self) -> Option<i64> {
        self.start_ns
    }

    /// The first two files of the capture whose times overlap; reading ends there.
    #[must_use]
    pub fn overlap(&self) -> Option<&Overlap> {
        self.overlap.as_ref()
    }

    #[cold]
    fn warn(warnings: &mut Vec<Warning>, warning: Warning) {
        if warnings.len() < MAX_WARNINGS {
            warnings.push(warning);
        }
    }

    /// Ends this file, and opens the next one of the capture.
    #[cold]
    fn end_file(&mut self) {
        if self.has_parts {
            let unnamed = self.warnings.iter_mut().rev();
            for warning in unnamed.take_while(|warning| warning.file.is_none()) {
                warning.file = Some(self.file.clone());
            }
        }
        let Some(path) = self.later.pop_front() else {
            self.ended = true;
            return;
        };
        let earlier = mem::replace(&mut self.file, path);
        let next = open_file(&self.file)
            .and_then(|(source, _)| Self::with_progress(&self.file, source, self.progress.clone()));
        match next {
            Ok(next) => {
                (self.window, self.reader) = (next.window, next.reader);
                self.before_ns = i64::MIN;
                self.earlier = Some(earlier);
            }
            Err(error) => {
                let problem = Problem::Read(error.cause.to_string());
                Self::warn(&mut self.warnings, Warning::new(0, problem));
                self.end_file();
            }
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
                Ok(ReadStep::Frame(frame)) => {
                    if let Some(earlier) = self.earlier.take() {
                        self.overlap = overlap(earlier, &self.file, self.span_ns, &frame);
                        self.ended = self.overlap.is_some();
                        if self.ended {
                            return None;
                        }
                    }
                    self.counts.packets += 1;
                    self.counts.before_1970 += u64::from(frame.at_ns.is_some_and(|ns| ns < 0));
                    update_span(&mut self.span_ns, &frame);
                    if let Some(back_s) = set_back(&mut self.before_ns, &frame) {
                        let packet = self.counts.packets;
                        let problem = Problem::SetBack { packet, back_s };
                        Self::warn(&mut self.warnings, Warning::new(offset, problem));
                    }
                    self.format.add(frame.link);
                    match headers::read(&frame, self.counts.packets, &self.filter) {
                        Ok(segment) => {
                            self.counts.tcp += 1;
                            self.counts.options_cut += u64::from(segment.options_cut);
                            self.counts.first_fragments += u64::from(segment.first_fragment);
                            self.start_ns.get_or_insert(segment.packet.at_ns);
                            return Some(segment.packet);
                        }
                        Err(skip) => self.counts.skipped(skip),
                    }
                }
                Ok(ReadStep::Lost(warning)) => {
                    self.counts.packets += 1;
                    let skip = match warning.problem {
                        Problem::TimeRange => SkipReason::TimeRange,
                        _ => SkipReason::Damaged,
                    };
                    self.counts.skipped(skip);
                    if skip == SkipReason::Damaged || self.counts.time_out_of_range == 1 {
                        Self::warn(&mut self.warnings, *warning);
                    }
                }
                Ok(ReadStep::Note(warning)) => Self::warn(&mut self.warnings, *warning),
                Ok(ReadStep::End) => self.end_file(),
                Err(warning) => {
                    Self::warn(&mut self.warnings, *warning);
                    self.end_file();
                }
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Input {}

/// Captures on several processors or interfaces reorder packets by less than this.
const SET_BACK_NS: i64 = 1_000_000_000;

/// Seconds by which the clock was set back before this packet.
#[inline]
fn set_back(before_ns: &mut i64, frame: &Frame) -> Option<u64> {
    let at_ns = frame.at_ns?;
    let back_ns = before_ns.saturating_sub(at_ns);
    *before_ns = at_ns;
    (back_ns >= SET_BACK_NS).then_some((back_ns / 1_000_000_000) as u64)
}

/// Whether the first packet of a file precedes the last one of the file before.
#[cold]
fn overlap(
    earlier: PathBuf,
    later: &Path,
    span_ns: Option<(i64, i64)>,
    first: &Frame,
) -> Option<Overlap> {
    let end_ns = span_ns?.1.saturating_sub(SET_BACK_NS);
    (first.at_ns? < end_ns).then(|| Overlap {
        earlier,
        later: later.to_owned(),
    })
}

#[inline]
fn update_span(span_ns: &mut Option<(i64, i64)>, frame: &Frame) {
    if let Some(at) = frame.at_ns {
        let (first, last) = span_ns.get_or_insert((at, at));
        *first = at.min(*first);
        *last = at.max(*last);
    }
}

/// Selects packets; all set conditions must hold.
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
    /// Also accepts packets from or to this address.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.addresses
            .push(Endpoint::from(SocketAddr::new(address, 0)).address);
        self
    }

    /// Also accepts packets from or to this port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// Rejects packets captured before `ns`, in nanoseconds since 1970.
    #[must_use]
    pub fn from(mut self, ns: i64) -> Self {
        self.from_ns = Some(ns);
        self
    }

    /// Rejects packets captured at `ns` or later, in nanoseconds since 1970.
    #[must_use]
    pub fn until(mut self, ns: i64) -> Self {
        self.until_ns = Some(ns);
        self
    }

    #[inline]
    fn matches_time(&self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from| ns >= from) && self.until_ns.is_none_or(|until| ns < until)
    }

    #[inline]
    fn matches_ends(&self, from: &Endpoint, to: &Endpoint) -> bool {
        let ends = [from, to];
        (self.addresses.is_empty() || ends.iter().any(|end| self.addresses.contains(&end.address)))
            && (self.ports.is_empty() || ends.iter().any(|end| self.ports.contains(&end.port)))
    }
}

/// A trace's packets by result. All except the last three are disjoint and add up to `packets` once
/// the trace has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputCounts {
    /// All packets of the trace.
    pub packets: u64,
    /// Returned TCP segments.
    pub tcp: u64,
    /// On an interface with an unsupported link type.
    pub other_link: u64,
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// IP without TCP.
    pub not_tcp: u64,
    /// TCP fragments without the TCP header.
    pub fragments: u64,
    /// Truncated before the end of the TCP header.
    pub cut: u64,
    /// With inconsistent headers or lengths.
    pub damaged: u64,
    /// Captured at a time that does not fit into 64 bits of nanoseconds.
    pub time_out_of_range: u64,
    /// Rejected by the filter.
    pub filtered: u64,
    /// Returned packets truncated within the TCP options, which are incomplete.
    pub options_cut: u64,
    /// Returned first fragments; more fragments contain the rest of the payload.
    pub first_fragments: u64,
    /// Captured before 1970 by their clock.
    pub before_1970: u64,
}

impl InputCounts {
    fn skipped(&mut self, reason: SkipReason) {
        *match reason {
            SkipReason::OtherLink => &mut self.other_link,
            SkipReason::NotIp => &mut self.not_ip,
            SkipReason::NotTcp => &mut self.not_tcp,
            SkipReason::Fragment => &mut self.fragments,
            SkipReason::Cut => &mut self.cut,
            SkipReason::Damaged => &mut self.damaged,
            SkipReason::TimeRange => &mut self.time_out_of_range,
            SkipReason::Filtered => &mut self.filtered,
        } += 1;
    }
}

/// Number of bytes read from a trace file, before decompression.
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

/// A source that counts its bytes.
struct CountingReader<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R> CountingReader<R> {
    pub fn new(source: R, progress: &Progress) -> Self {
        Self {
            source,
            read: Arc::clone(&progress.read),
        }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
