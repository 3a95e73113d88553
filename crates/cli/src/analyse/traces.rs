use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pillion_trace::input::{self, Input};
use pillion_trace::pair::{self, Finding, Options};
use pillion_trace::{Analysis, Observer};

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

struct Trace {
    name: String,
    input: Input,
}

/// What reading them gave.
pub struct Observed<O> {
    pub observer: O,
    /// Of two traces.
    pub finding: Option<Finding>,
    /// What the files are called, sender first.
    pub names: Vec<String>,
    /// When the first packet of each was captured, in nanoseconds since 1970.
    pub begin_ns: Vec<i64>,
    damaged: bool,
}

impl Files {
    pub fn open(self) -> Result<Traces> {
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
                ..Options::default()
            },
        })
    }
}

impl Trace {
    fn open(path: &Path) -> Result<Self> {
        let input = input::open(path)?;
        let name = if is_standard_input(path) {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Self { name, input })
    }

    fn begin_ns(&self) -> i64 {
        self.input.span_ns().map_or(0, |(begin, _)| begin)
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

impl Traces {
    /// Reads them to their ends, shows how far that has come, and says on standard error where
    /// they are damaged.
    pub fn observe<O: Observer>(mut self, observer: O) -> Observed<O> {
        let progress = self.progress();
        let (observer, finding) = match &mut self.receiver {
            Some(receiver) => {
                let (sender, receiver) = (&mut self.sender.input, &mut receiver.input);
                let (observer, finding) = pair::analyse(sender, receiver, &self.options, observer);
                (observer, Some(finding))
            }
            None => {
                let mut analysis = Analysis::new(observer);
                for packet in &mut self.sender.input {
                    analysis.packet(&packet);
                }
                (analysis.finish(), None)
            }
        };
        progress.finish();
        let traces = [Some(&self.sender), self.receiver.as_ref()];
        let traces = || traces.into_iter().flatten();
        Observed {
            observer,
            finding,
            names: traces().map(|trace| trace.name.clone()).collect(),
            begin_ns: traces().map(Trace::begin_ns).collect(),
            damaged: traces().map(Trace::complain).fold(false, |a, b| a | b),
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
