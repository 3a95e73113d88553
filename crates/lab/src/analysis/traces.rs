//! Reads the packet traces of one or both ends, and says what in them could not be used.

use std::net::IpAddr;
use std::path::Path;

use pillion_stats::report::number::count;
use pillion_trace::input::{self, Counts, Input, InputError, Progress, Warning};
use pillion_trace::pair::{self, Finding, Options};
use pillion_trace::{Analysis, Endpoint, Observer, Packet, Period};
use thiserror::Error;

/// Traces about to be read: of the sender of the data, and of its receiver if there is one.
pub struct Traces {
    sender: Trace,
    receiver: Option<Trace>,
    options: Options,
}

/// A trace, and what it gave.
pub struct Trace {
    /// What the file is called.
    pub name: String,
    /// The trace's packets.
    pub input: Input,
    /// When the trace's first TCP packet was captured, in nanoseconds since 1970.
    begin_ns: Option<i64>,
}

/// What reading traces gave.
pub struct Observed<O> {
    /// Who was told all of it.
    pub observer: O,
    /// Of two traces.
    pub finding: Option<Finding>,
    /// Sender first.
    pub traces: Vec<Trace>,
}

impl Trace {
    fn open(path: &Path) -> Result<Self, InputError> {
        let input = input::open(path)?;
        let name = if is_standard_input(path) {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Self {
            name,
            input,
            begin_ns: None,
        })
    }

    /// When its first TCP packet was captured, in nanoseconds since 1970.
    #[must_use]
    pub fn begin_ns(&self) -> i64 {
        self.begin_ns.unwrap_or_default()
    }

    /// What the file is called, without its folder.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let file = Path::new(&self.name).file_name();
        file.and_then(|file| file.to_str()).unwrap_or(&self.name)
    }

    fn damage(&self) -> Option<&Warning> {
        let mut warnings = self.input.warnings().iter();
        warnings.find(|warning| warning.problem.is_damage())
    }
}

impl Iterator for Trace {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let packet = self.input.next()?;
        self.begin_ns.get_or_insert(packet.at_ns);
        Some(packet)
    }
}

impl Traces {
    /// Opens the trace of the sender and that of the receiver; `-` is standard input. `addresses`
    /// are those that the network translates, as the receiver's trace shows them and as the
    /// sender's does. `same_clock`: both were taken by one clock.
    ///
    /// # Errors
    /// [`OpenError`], with the file's name.
    pub fn open(
        sender: &Path,
        receiver: Option<&Path>,
        addresses: Vec<(IpAddr, IpAddr)>,
        period: Period,
        same_clock: bool,
    ) -> Result<Self, OpenError> {
        if is_standard_input(sender) && receiver.is_some_and(is_standard_input) {
            return Err(OpenError::OneInput);
        }
        Ok(Self {
            sender: Trace::open(sender)?,
            receiver: receiver.map(Trace::open).transpose()?,
            options: Options {
                addresses,
                period,
                same_clock,
                ..Options::default()
            },
        })
    }

    /// Opens one trace, to be read as a whole.
    ///
    /// # Errors
    /// [`InputError`], with the file's name.
    pub fn one(path: &Path) -> Result<Self, InputError> {
        Ok(Self {
            sender: Trace::open(path)?,
            receiver: None,
            options: Options::default(),
        })
    }

    /// How far reading has come, of each trace.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        let traces = [Some(&self.sender), self.receiver.as_ref()];
        let traces = traces.into_iter().flatten();
        traces.map(|trace| trace.input.progress().clone()).collect()
    }

    /// Reads them to their ends.
    pub fn observe<O: Observer>(mut self, observer: O) -> Observed<O> {
        let (observer, finding) = match &mut self.receiver {
            Some(receiver) => {
                let sender = &mut self.sender;
                let (observer, finding) = pair::analyse(sender, receiver, &self.options, observer);
                (observer, Some(finding))
            }
            None => {
                let mut analysis = Analysis::of(observer, self.options.period);
                for packet in &mut self.sender {
                    analysis.packet(&packet);
                }
                (analysis.finish(), None)
            }
        };
        let traces = [Some(self.sender), self.receiver];
        Observed {
            observer,
            finding,
            traces: traces.into_iter().flatten().collect(),
        }
    }
}

impl<O> Observed<O> {
    /// Whether a trace broke off or is damaged, so that this is of the rest.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.traces.iter().any(|trace| trace.damage().is_some())
    }

    /// What reading gave, if all of each trace was read.
    ///
    /// # Errors
    /// [`OpenError::Damaged`].
    pub fn whole(self) -> Result<Self, OpenError> {
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

/// Why traces cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Both are to come from one stream.
    #[error("both traces cannot come from standard input; name a file for one")]
    OneInput,
    /// One cannot be read, or is none.
    #[error(transparent)]
    Input(#[from] InputError),
    /// One broke off or is damaged, where nothing but the whole of it will do.
    #[error("{name}: {warning}")]
    Damaged {
        /// What the file is called.
        name: String,
        /// The first damage, and where.
        warning: Warning,
    },
}

/// Why there is nothing to tell of a byte.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// There are fewer connections.
    #[error("there is no connection {connection} in the trace; --list shows {connections}")]
    NoConnection {
        /// The one that was asked for.
        connection: u64,
        /// How many there are.
        connections: u64,
    },
    /// The stream does not have the byte.
    #[error(
        "the trace shows no such byte of connection {connection} from {sender}; it shows {there}",
        there = shown(*.bytes)
    )]
    NoByte {
        /// The connection's number.
        connection: u64,
        /// Whose stream it is.
        sender: Endpoint,
        /// The last byte that the trace shows, counted from 1; 0 if it shows none.
        bytes: i64,
    },
}

fn shown(bytes: i64) -> String {
    match bytes {
        ..=0 => "none".to_owned(),
        bytes => format!("bytes 1 to {bytes}"),
    }
}

/// Packets of a trace that are in no number, or not wholly, each kind in a sentence; what is no TCP is
/// nothing to tell of, unless it is all that there is.
#[must_use]
pub fn unread(counts: &Counts) -> Vec<String> {
    let all = count(counts.packets);
    let told = |number: u64, what: &str| {
        (number > 0).then(|| format!("of {all} packets, {} {what}", count(number)))
    };
    let sentences = [
        told(
            counts.cut,
            "were captured too short for the TCP header, and are in no number; capture 128 bytes of \
             each, as with `tcpdump -s 128`",
        ),
        told(
            counts.options_cut,
            "were captured too short for the TCP options, so that timestamps and SACK blocks may be \
             missing; capture 128 bytes of each, as with `tcpdump -s 128`",
        ),
        told(
            counts.damaged,
            "contradict themselves or their length, and are in no number",
        ),
        told(
            counts.fragments,
            "are fragments without the TCP header, whose payload is in no number",
        ),
    ];
    let others = (counts.tcp == 0).then(|| without_tcp(counts)).flatten();
    sentences.into_iter().flatten().chain(others).collect()
}

/// What there is in a trace without TCP.
fn without_tcp(counts: &Counts) -> Option<String> {
    let kinds = [
        (counts.not_ip, "are no IP, as in MPLS and PPPoE"),
        (counts.not_tcp, "have something else in IP, as tunnels do"),
        (counts.other_link, "are of a link layer that is not read"),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<_> = kinds
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    let all = count(counts.packets);
    (!kinds.is_empty()).then(|| format!("of {all} packets none is TCP: {}", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_trace_that_breaks_off_the_whole_is_not_to_be_had() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.pcap");
        let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        // Version 2.4, zone, accuracy, length, Ethernet; then a part of a record.
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend([0, 0, 1, 0, 1, 0, 0, 0]);
        let observed = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            Traces::one(&file).unwrap().observe(())
        };
        assert!(observed(&bytes).whole().is_ok());
        bytes.extend([0; 10]);
        let error = observed(&bytes).whole().err().unwrap().to_string();
        assert!(
            error.contains("cut.pcap") && error.contains("ends within a record"),
            "{error}"
        );
    }

    #[test]
    fn what_is_in_no_number_is_told_by_its_reason() {
        let counts = Counts {
            packets: 12_000,
            tcp: 11_000,
            not_tcp: 500,
            cut: 490,
            fragments: 10,
            ..Counts::default()
        };
        let told = unread(&counts);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("490 were captured too short for the TCP header"),
            "{told:?}"
        );
        assert!(told[1].contains("10 are fragments"), "{told:?}");
        let whole = Counts {
            packets: 2,
            tcp: 1,
            not_ip: 1,
            ..Counts::default()
        };
        assert!(unread(&whole).is_empty());
    }

    #[test]
    fn a_trace_without_tcp_says_what_else_there_is() {
        let counts = Counts {
            packets: 3,
            not_ip: 1,
            not_tcp: 2,
            ..Counts::default()
        };
        assert_eq!(
            unread(&counts),
            [
                "of 3 packets none is TCP: 1 are no IP, as in MPLS and PPPoE, 2 have something else in \
                 IP, as tunnels do"
            ]
        );
        assert!(unread(&Counts::default()).is_empty());
    }
}
