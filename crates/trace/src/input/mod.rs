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

mod compression;
mod container;
mod counts;
mod error;
mod fields;
mod filter;
mod format;
mod headers;
mod progress;
mod warning;
mod window;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

pub use compression::Compression;
pub use container::Container;
pub use counts::Counts;
pub use error::{InputError, Unreadable};
pub use filter::Filter;
pub use format::Format;
pub use headers::LinkType;
pub use progress::Progress;
pub use warning::{Problem, Warning};

use container::{Frame, Reader, Step};
use headers::Skip;
use progress::Metered;
use window::Window;

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
            compression::unpack(source).map_err(|error| unreadable(Unreadable::Read(error)))?;
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
