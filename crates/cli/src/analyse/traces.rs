use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pillion_trace::input::{self, Input, InputError};
use pillion_trace::pair::{self, Finding, Options};
use pillion_trace::{Analysis, Observer, Packet, Period};

use crate::exit::{self, BadInput};
use crate::progress::Progress;

/// Where the traces are.
#[derive(clap::Args)]
pub struct Files {
    /// The trace, taken at the sender of the data; `-` for standard input
    #[arg(value_name = "SENDER")]
    sender: PathBuf,

    /// The trace of the same connections at their receiver; its clock may be another
    #[arg(long, value_name = "RECEIVER")]
    receiver: Option<PathBuf>,

    /// An address that the network translates: as the receiver's trace shows it, and as the
    /// sender's does; may be repeated. Most are found without
    #[arg(long, value_name = "THERE=HERE", value_parser = parse_nat, requires = "receiver")]
    nat: Vec<(IpAddr, IpAddr)>,
}

/// Traces about to be read.
pub struct Traces {
    sender: Trace,
    receiver: Option<Trace>,
    options: Options,
}

/// A trace, and what it gave.
pub struct Trace {
    /// What the file is called.
    pub name: String,
    pub input: Input,
    /// When its first TCP packet was captured, in nanoseconds since 1970.
    begin_ns: Option<i64>,
}

/// What reading them gave.
pub struct Observed<O> {
    pub observer: O,
    /// Of two traces.
    pub finding: Option<Finding>,
    /// Sender first.
    pub traces: Vec<Trace>,
    damaged: bool,
}

impl Files {
    pub fn open(self, period: Period) -> Result<Traces> {
        let receiver = self.receiver.as_deref();
        if is_standard_input(&self.sender) && receiver.is_some_and(is_standard_input) {
            let mistake = "both traces cannot come from standard input; name a file for one";
            return Err(BadInput(mistake.to_owned()).into());
        }
        Ok(Traces {
            sender: Trace::open(&self.sender)?,
            receiver: receiver.map(Trace::open).transpose()?,
            options: Options {
                addresses: self.nat,
                period,
                ..Options::default()
            },
        })
    }
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
    pub fn begin_ns(&self) -> i64 {
        self.begin_ns.unwrap_or_default()
    }

    /// What the file is called, without its folder.
    pub fn file_name(&self) -> &str {
        let file = Path::new(&self.name).file_name();
        file.and_then(|file| file.to_str()).unwrap_or(&self.name)
    }

    /// Says where it is damaged; whether it is.
    fn complain(&self) -> bool {
        let warnings = self.input.warnings();
        for warning in warnings {
            eprintln!("pillion: {}: {warning}", self.name);
        }
        warnings.iter().any(|warning| warning.problem.is_damage())
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
    /// One trace alone.
    pub fn one(path: &Path) -> Result<Self, InputError> {
        Ok(Self {
            sender: Trace::open(path)?,
            receiver: None,
            options: Options::default(),
        })
    }

    /// Reads them to their ends, shows how far that has come, and says on standard error where
    /// they are damaged.
    pub fn observe<O: Observer>(mut self, observer: O) -> Observed<O> {
        let progress = self.progress();
        let (observer, finding) = match &mut self.receiver {
            Some(receiver) => {
                let sender = &mut self.sender;
                let (observer, finding) = pair::analyse(sender, receiver, &self.options, observer);
                (observer, Some(finding))
            }
            None => {
                let mut analysis = Analysis::new(observer);
                let period = self.options.period;
                while let Some(packet) = self.sender.next() {
                    if period.takes(self.sender.begin_ns(), packet.at_ns) {
                        analysis.packet(&packet);
                    }
                }
                (analysis.finish(), None)
            }
        };
        progress.finish();
        let traces: Vec<Trace> = [Some(self.sender), self.receiver]
            .into_iter()
            .flatten()
            .collect();
        Observed {
            observer,
            finding,
            damaged: traces
                .iter()
                .fold(false, |damaged, trace| trace.complain() | damaged),
            traces,
        }
    }

    fn progress(&self) -> Progress {
        let traces = [Some(&self.sender), self.receiver.as_ref()];
        let followed: Vec<input::Progress> = traces
            .into_iter()
            .flatten()
            .map(|trace| trace.input.progress().clone())
            .collect();
        let total = followed.iter().map(input::Progress::total).sum();
        Progress::read(total, move || {
            followed.iter().map(input::Progress::read).sum()
        })
    }
}

impl<O> Observed<O> {
    pub fn exit_code(&self) -> ExitCode {
        if self.damaged {
            ExitCode::from(exit::INCOMPLETE)
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn parse_nat(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let pair = text.split_once('=');
    let pair = pair.and_then(|(there, here)| Some((there.parse().ok()?, here.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not of the form 203.0.113.9=10.0.0.7"))
}
