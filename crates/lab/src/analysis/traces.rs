//! Reads the packet traces of one or both ends, and describes packets that could not be used.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use pillion_stats::report::number::count;
use pillion_trace::input::{self, Input, InputCounts, InputError, Overlap, Progress, Warning};
use pillion_trace::pair::{self, PairOptions, PairSummary};
use pillion_trace::{Endpoint, Observer, Period, analyse};
use thiserror::Error;

/// Opened traces: the sender's, and optionally the receiver's.
pub struct Traces {
    sender: Trace,
    receiver: Option<Trace>,
    options: PairOptions,
}

/// An opened trace.
pub struct Trace {
    /// The file's path, or `standard input`.
    pub name: String,
    /// The trace's packets, counts and warnings.
    pub input: Input,
}

/// The result of reading traces.
pub struct Observation<O> {
    /// The observer that received all events.
    pub observer: O,
    /// How both traces relate; `None` with one trace.
    pub finding: Option<PairSummary>,
    /// The traces after reading; the sender's is first.
    pub traces: Vec<Trace>,
}

impl Trace {
    fn open(files: &[PathBuf]) -> Result<Self, InputError> {
        let input = input::open_parts(files)?;
        let name = match files {
            [only] if is_standard_input(only) => "standard input".to_owned(),
            [only] => only.display().to_string(),
            [first, ..] => format!("{} to {}", first.display(), file_name(files.last())),
            [] => String::new(),
        };
        Ok(Self { name, input })
    }

    /// Returns the time of the first TCP packet, in nanoseconds since 1970; 0 if the trace has
    /// none.
    #[must_use]
    pub fn start_ns(&self) -> i64 {
        self.input.start_ns().unwrap_or_default()
    }

    /// Returns the file's name without its folder.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let file = Path::new(&self.name).file_name();
        file.and_then(|file| file.to_str()).unwrap_or(&self.name)
    }

    /// Returns the first two files of the trace whose times overlap.
    #[must_use]
    pub fn overlap(&self) -> Option<&Overlap> {
        self.input.overlap()
    }

    fn damage(&self) -> Option<&Warning> {
        let mut warnings = self.input.warnings().iter();
        warnings.find(|warning| warning.problem.is_damage())
    }
}

impl Traces {
    /// Opens the trace of the sender and that of the receiver; `-` is standard input. Each may have
    /// several files, as from a ring buffer; the receiver's may have none. `addresses`
    /// are pairs for address translation: the address in the receiver's trace, and in the sender's.
    /// `same_clock` means that one clock took both.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with the file's name.
    pub fn open(
        sender: &[PathBuf],
        receiver: &[PathBuf],
        addresses: Vec<(IpAddr, IpAddr)>,
        period: Period,
        same_clock: bool,
    ) -> Result<Self, OpenError> {
        let has_input = |files: &[PathBuf]| files.iter().any(|file| is_standard_input(file));
        if has_input(sender) && has_input(receiver) {
            return Err(OpenError::OneInput);
        }
        if [sender, receiver]
            .iter()
            .any(|it| it.len() > 1 && has_input(it))
        {
            return Err(OpenError::InputAmongFiles);
        }
        let receiver = (!receiver.is_empty()).then(|| Trace::open(receiver));
        Ok(Self {
            sender: Trace::open(sender)?,
            receiver: receiver.transpose()?,
            options: PairOptions {
                addresses,
                period,
                same_clock,
                ..PairOptions::default()
            },
        })
    }

    /// Opens one trace, without a restriction of its period.
    ///
    /// # Errors
    ///
    /// [`InputError`], with the file's name.
    pub fn open_single(path: &Path) -> Result<Self, InputError> {
        Ok(Self {
            sender: Trace::open(&[path.to_owned()])?,
            receiver: None,
            options: PairOptions::default(),
        })
    }

    /// Returns handles to the read progress of each trace.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        let traces = [Some(&self.sender), self.receiver.as_ref()];
        let traces = traces.into_iter().flatten();
        traces.map(|trace| trace.input.progress().clone()).collect()
    }

    /// Reads all traces to their ends.
    pub fn observe<O: Observer>(mut self, observer: O) -> Observation<O> {
        let (observer, finding) = match &mut self.receiver {
            Some(receiver) => {
                let (sender, receiver) = (&mut self.sender.input, &mut receiver.input);
                let (observer, finding) = pair::analyse(sender, receiver, &self.options, observer);
                (observer, Some(finding))
            }
            None => {
                let input = &mut self.sender.input;
                (analyse(input, self.options.period, observer), None)
            }
        };
        let traces = [Some(self.sender), self.receiver];
        Observation {
            observer,
            finding,
            traces: traces.into_iter().flatten().collect(),
        }
    }
}

impl<O> Observation<O> {
    /// Whether a trace is truncated or damaged, so that the result covers only a part.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.traces.iter().any(|trace| trace.damage().is_some())
    }

    /// Returns the result if no trace is truncated or damaged.
    ///
    /// # Errors
    ///
    /// [`OpenError::Damaged`].
    pub fn require_undamaged(self) -> Result<Self, OpenError> {
        let damaged = self.traces.iter().find_map(|trace| {
            let warning = trace.damage()?.clone();
            let name = trace.name.clone();
            Some(OpenError::Damaged { name, warning })
        });
        damaged.map_or(Ok(self), Err)
    }
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn file_name(file: Option<&PathBuf>) -> String {
    let name = file.and_then(|file| file.file_name()).unwrap_or_default();
    name.display().to_string()
}

/// The reason why traces cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Both traces would be read from standard input.
    #[error("both traces cannot come from standard input: name a file for one")]
    OneInput,
    /// Standard input is one of several files.
    #[error("standard input cannot be one of several files of a trace: name files only")]
    InputAmongFiles,
    /// A file cannot be read, or has an unknown format.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A trace is truncated or damaged, and a complete one is required.
    #[error("{name}: {warning}")]
    Damaged {
        /// The file's path.
        name: String,
        /// The first damage, with its offset.
        warning: Warning,
    },
}

/// The reason why a byte has no history.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// The trace has fewer connections.
    #[error("unknown connection {connection}: the trace has {connections}; list them with --list")]
    NoConnection {
        /// The requested connection.
        connection: u64,
        /// The number of connections in the trace.
        connections: u64,
    },
    /// The trace does not show the byte.
    #[error(
        "the trace does not show this byte of connection {connection} from {sender}: it shows \
         {available}",
        available = byte_range_text(*.bytes)
    )]
    NoByte {
        /// The connection's number.
        connection: u64,
        /// The end that sends the stream.
        sender: Endpoint,
        /// The last byte that the trace shows, counted from 1; 0 if it shows none.
        bytes: i64,
    },
}

fn byte_range_text(bytes: i64) -> String {
    match bytes {
        ..=0 => "none".to_owned(),
        bytes => format!("bytes 1 to {bytes}"),
    }
}

/// Describes packets that are excluded from the results or doubtful, one sentence per reason.
/// Packets without TCP are described only if the trace has no others.
#[must_use]
pub fn unread_packet_notes(counts: &InputCounts) -> Vec<String> {
    let all = count(counts.packets);
    let note = |number: u64, what: &str| {
        (number > 0).then(|| format!("{} of {all} packets {what}", count(number)))
    };
    let sentences = [
        note(
            counts.cut,
            "were truncated within the TCP header, and are not counted: capture 128 bytes of \
             each, as with `tcpdump -s 128`",
        ),
        note(
            counts.options_cut,
            "were truncated within the TCP options, so that timestamps and SACK blocks may be \
             missing: capture 128 bytes of each, as with `tcpdump -s 128`",
        ),
        note(counts.damaged, "are damaged, and are not counted"),
        note(
            counts.time_out_of_range,
            "have times before 1677 or after 2262, and are not counted",
        ),
        note(
            counts.before_1970,
            "have times before 1970: check the clock of the capturing host",
        ),
        note(
            counts.fragments,
            "are fragments without the TCP header, whose payload is not counted",
        ),
    ];
    let non_tcp = (counts.tcp == 0).then(|| non_tcp_note(counts)).flatten();
    sentences.into_iter().flatten().chain(non_tcp).collect()
}

/// Describes the packets of a trace without TCP.
fn non_tcp_note(counts: &InputCounts) -> Option<String> {
    let kinds = [
        (counts.not_ip, "are not IP, as in MPLS"),
        (counts.not_tcp, "are not TCP, as in tunnels"),
        (counts.other_link, "have an unsupported link type"),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<_> = kinds
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    let all = count(counts.packets);
    (!kinds.is_empty()).then(|| format!("none of {all} packets is TCP: {}", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_trace_is_an_error_if_all_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.pcap");
        let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        // Version 2.4, zone, accuracy, length, Ethernet; then a truncated record.
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend([0, 0, 1, 0, 1, 0, 0, 0]);
        let observed = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            Traces::open_single(&file).unwrap().observe(())
        };
        assert!(observed(&bytes).require_undamaged().is_ok());
        bytes.extend([0; 10]);
        let error = observed(&bytes)
            .require_undamaged()
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("cut.pcap") && error.contains("ends within a record"),
            "{error}"
        );
    }

    #[test]
    fn uncounted_packets_are_reported_by_reason() {
        let counts = InputCounts {
            packets: 12_000,
            tcp: 11_000,
            not_tcp: 500,
            cut: 490,
            fragments: 10,
            ..InputCounts::default()
        };
        let note = unread_packet_notes(&counts);
        assert_eq!(note.len(), 2, "{note:?}");
        assert!(
            note[0].contains("490 of 12\u{a0}000 packets were truncated within the TCP header"),
            "{note:?}"
        );
        assert!(
            note[1].contains("10 of 12\u{a0}000 packets are fragments"),
            "{note:?}"
        );
        let complete = InputCounts {
            packets: 2,
            tcp: 1,
            not_ip: 1,
            ..InputCounts::default()
        };
        assert!(unread_packet_notes(&complete).is_empty());
    }

    #[test]
    fn trace_without_tcp_reports_other_packets() {
        let counts = InputCounts {
            packets: 3,
            not_ip: 1,
            not_tcp: 2,
            ..InputCounts::default()
        };
        assert_eq!(
            unread_packet_notes(&counts),
            ["none of 3 packets is TCP: 1 are not IP, as in MPLS, 2 are not TCP, as in tunnels"]
        );
        assert!(unread_packet_notes(&InputCounts::default()).is_empty());
    }
}
