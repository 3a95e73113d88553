use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Id;
use pillion_cli::print::{print_json, print_line};
use pillion_cli::settings::times::parse_duration;
use pillion_cli::settings::{BadInput, arguments};
use pillion_cli::stop;
use pillion_lab::settings::parse_host_port;
use pillion_lab::settings::traffic::{self, Group, GroupFile, SenderOptions, to_bad_input};
use pillion_lab::traffic::{SendReport, Sender, Traffic};
use pillion_stats::report::number;

use crate::commands::progress::Progress;
use crate::commands::records_output::RecordsOutput;

/// Send streams to `pillion-lab traffic receive`
///
/// All connections are established first, then each stream sends according to its kind.
/// docs/lab/traffic.md describes the kinds.
#[derive(clap::Args)]
pub struct Args {
    /// Address of the receiver
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = parse_host_port,
        required_unless_present = "check_config"
    )]
    to: Option<SocketAddr>,

    /// Read groups of streams from FILE; they run at the same time
    #[arg(long, value_name = "FILE", conflicts_with_all = file_options())]
    config: Option<PathBuf>,

    /// Only check the file, and print a line for each mistake
    #[arg(long, requires = "config")]
    check_config: bool,

    #[command(flatten)]
    group: Group,

    /// Time of sending [default: 10s, or until all messages are sent]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Seed of times, sizes and content
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    sending: SenderArgs,
}

/// Returns the options that a file replaces.
fn file_options() -> impl Iterator<Item = Id> {
    let all = ["duration", "seed"].map(Id::from);
    all.into_iter().chain(arguments::<Group>())
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let file = match &self.config {
            None => self.file()?,
            Some(file) => match traffic::load(file) {
                Ok(file) => file,
                Err(mistakes) => {
                    pillion_cli::log::mistakes(&mistakes.to_string());
                    return Ok(ExitCode::from(2));
                }
            },
        };
        let streams: usize = file.groups.iter().map(|group| group.streams).sum();
        let Some(to) = self.to.filter(|_| !self.check_config) else {
            print_line!(
                "valid: {} in {}",
                number::counted(streams as u64, "stream"),
                number::counted(file.groups.len() as u64, "group"),
            )?;
            return Ok(ExitCode::SUCCESS);
        };
        self.sending.execute(Traffic {
            duration: file.duration,
            seed: file.seed,
            ..Traffic::of(to, file.groups)
        })
    }

    fn file(&self) -> Result<GroupFile, BadInput> {
        let group = self.group.group().map_err(to_bad_input)?;
        let default = group.messages.is_none().then_some(DURATION);
        Ok(GroupFile {
            duration: self.duration.or(default),
            seed: self.seed,
            groups: vec![group],
        })
    }
}

// Sending and reporting, for `send` and `replay`.

/// Default time of sending, unless the number of messages is given.
pub const DURATION: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct SenderArgs {
    #[command(flatten)]
    sending: SenderOptions,

    /// Write a CSV record of every response to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl SenderArgs {
    pub fn execute(&self, traffic: Traffic) -> Result<ExitCode> {
        let stop = stop::on_signal()?;
        let sender = Sender::new(Traffic {
            records: self.records.is_some(),
            ..self.sending.send(traffic)
        })?;
        let file = self.records.as_ref();
        let file = file.map(|path| RecordsOutput::to("--records", path));
        let file = file.transpose()?;
        let progress = Progress::watch("sending", sender.planned(), sender.progress());
        let sent = sender.run_recording(&stop);
        progress.finish();
        let sent = sent?;
        if let Some(mut file) = file {
            file.write(&sent.records)?;
            file.finish()?;
        }
        let report = &sent.report;
        if self.json {
            print_json(report)?;
        } else {
            print(report)?;
        }
        Ok(if report.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn print(report: &SendReport) -> Result<()> {
    print_line!(
        "sent {} {}, {} on {}",
        number::count(report.messages),
        number::plural(report.messages, "message"),
        number::bytes(report.bytes as f64),
        number::counted(report.streams.len() as u64, "stream"),
    )?;
    if report.groups.len() > 1 {
        for group in &report.groups {
            print_line!(
                "  {} ({}): {} {}, {} on {}",
                group.name,
                group.kind,
                number::count(group.messages),
                number::plural(group.messages, "message"),
                number::bytes(group.bytes as f64),
                number::counted(group.streams as u64, "stream"),
            )?;
        }
    }
    if let Some(retransmissions) = report.retransmissions {
        print_line!("retransmissions {}", number::count(retransmissions))?;
    }
    if let Some(round_trip) = &report.round_trip_us {
        print_line!(
            "{} {}, round-trip latency in ms: {}",
            number::count(report.answers),
            number::plural(report.answers, "response"),
            super::latency(round_trip)
        )?;
    }
    let late = &report.send_error_us;
    print_line!(
        "sent late by p50 {:.0}, p99 {:.0}, max {:.0} us",
        late.p50,
        late.p99,
        late.max
    )?;
    if report.blocked_writes > 0 {
        print_line!(
            "{} {} waited for a full socket buffer",
            number::count(report.blocked_writes),
            number::plural(report.blocked_writes, "message")
        )?;
    }
    let mut failed = BTreeMap::<&str, Vec<u32>>::new();
    for stream in &report.streams {
        if let Some(error) = &stream.error {
            failed.entry(error).or_default().push(stream.stream);
        }
    }
    for (error, streams) in failed {
        log::warn!("{}: {error}", stream_names(&streams));
    }
    if report.failed > 0 {
        log::warn!(
            "{} of {} failed",
            report.failed,
            number::counted(report.streams.len() as u64, "stream")
        );
    }
    Ok(())
}

/// Formats the numbers of streams; of many, only the first few.
fn stream_names(streams: &[u32]) -> String {
    const FEW: usize = 5;
    let numbers = |streams: &[u32]| {
        let numbers: Vec<_> = streams.iter().map(ToString::to_string).collect();
        numbers.join(", ")
    };
    match streams {
        [only] => format!("stream {only}"),
        streams if streams.len() <= FEW => format!("streams {}", numbers(streams)),
        streams => {
            let (few, more) = streams.split_at(FEW);
            format!("streams {} and {} more", numbers(few), more.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stream_failures_share_one_line() {
        assert_eq!(stream_names(&[7]), "stream 7");
        assert_eq!(stream_names(&[0, 2]), "streams 0, 2");
        assert_eq!(
            stream_names(&(0..1000).collect::<Vec<_>>()),
            "streams 0, 1, 2, 3, 4 and 995 more"
        );
    }
}
