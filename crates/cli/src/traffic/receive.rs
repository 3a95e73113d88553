use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use pillion_report::number;
use pillion_settings::times::parse_ms;
use pillion_traffic::records::write_records;
use pillion_traffic::{Answering, Reading, ReceiveConfig, ReceiveReport, Receiver};

use super::records;
use crate::print::{print_json, print_line};
use crate::progress::Progress;
use crate::stop;

/// Receive streams, verify every byte, and measure each message's delivery latency
///
/// The latency is that from the sender's write to this receiver's read, by one clock: both
/// must run on the same host (in whatever network namespaces). Exit status 1 if anything
/// was missing or wrong.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen; port 0 for any free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// End when so many connections have closed [default: end with Ctrl-C]
    #[arg(long, value_name = "N")]
    streams: Option<usize>,

    /// Read so many milliseconds after something has come [default: at once]
    #[arg(long, value_name = "MS", value_parser = parse_ms, conflicts_with = "read_rate")]
    read_delay: Option<Duration>,

    /// Read at most so many bytes a second of each connection
    #[arg(long, value_name = "BYTES/S")]
    read_rate: Option<u64>,

    /// Send back every byte
    #[arg(long, conflicts_with = "answer_every")]
    echo: bool,

    /// Answer each N-th message; streams that ask for answers themselves get those
    #[arg(long, value_name = "N")]
    answer_every: Option<u32>,

    /// Payload of such an answer in bytes [default: that of the message]
    #[arg(long, value_name = "BYTES", requires = "answer_every")]
    answer_size: Option<u32>,

    /// Write a record of every message to FILE (`pillion traffic records` shows it)
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let stop = stop::on_signal()?;
        let file = records::create(self.records.as_deref())?;
        let receiver = Receiver::bind(ReceiveConfig {
            listen: self.listen,
            streams: self.streams,
            records: file.is_some(),
        })?
        .with_manner(self.reading(), self.answering())?;
        eprintln!("pillion: listening on {}", receiver.local_addr());
        let progress = Progress::watch("received", None, receiver.progress());
        let received = receiver.run(&stop);
        progress.finish();
        let received = received?;
        if let Some(file) = file {
            write_records(&received.records, file).context("write --records")?;
        }
        let report = &received.report;
        if self.json {
            print_json(report)?;
        } else {
            print(report)?;
        }
        let intact = (report.corrupt, report.incomplete, report.broken) == (0, 0, 0);
        Ok(if intact {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn reading(&self) -> Reading {
        match (self.read_delay, self.read_rate) {
            (Some(delay), _) => Reading::Late(delay),
            (None, Some(rate)) => Reading::Rate(rate),
            (None, None) => Reading::AtOnce,
        }
    }

    fn answering(&self) -> Answering {
        match (self.echo, self.answer_every) {
            (true, _) => Answering::Echo,
            (false, None) => Answering::AsAsked,
            (false, Some(messages)) => Answering::Every {
                messages,
                size: self.answer_size,
            },
        }
    }
}

fn print(report: &ReceiveReport) -> Result<()> {
    print_line!(
        "received {} messages, {} on {} connections",
        number::count(report.messages),
        number::bytes(report.bytes as f64),
        report.connections,
    )?;
    if let Some(latency) = &report.latency_us {
        print_line!("delivery latency in ms: {}", super::latency(latency))?;
    }
    let faults = [
        (report.corrupt, "carried a wrong byte"),
        (report.incomplete, "ended too early"),
        (report.broken, "broke"),
    ];
    for (count, what) in faults.into_iter().filter(|(count, _)| *count > 0) {
        print_line!("{} connections {what}", number::count(count as u64))?;
    }
    for stream in report
        .streams
        .iter()
        .filter(|stream| stream.fault.is_some())
    {
        eprintln!("pillion: {stream}");
    }
    Ok(())
}
