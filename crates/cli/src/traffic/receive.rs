use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_report::number;
use pillion_traffic::{ReceiveConfig, ReceiveReport, Receiver, write_csv};

use crate::progress::Progress;
use crate::stop;

/// Receive thin streams, verify every byte, and measure each message's delivery latency
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

    /// Write a record of every message to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let stop = stop::on_signal()?;
        let csv = match &self.records {
            Some(path) => Some(
                File::create(path)
                    .with_context(|| format!("write --records {}", path.display()))?,
            ),
            None => None,
        };
        let receiver = Receiver::bind(ReceiveConfig {
            listen: self.listen,
            streams: self.streams,
            records: csv.is_some(),
        })?;
        eprintln!("pillion: listening on {}", receiver.local_addr());
        let progress = Progress::watch("received", None, receiver.progress());
        let received = receiver.run(&stop);
        progress.finish();
        let received = received?;
        if let Some(csv) = csv {
            write_csv(&received.records, csv).context("write --records")?;
        }
        let report = &received.report;
        if self.json {
            println!("{}", serde_json::to_string_pretty(report)?);
        } else {
            print(report);
        }
        let intact = report.corrupt == 0 && report.incomplete == 0;
        Ok(if intact {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn print(report: &ReceiveReport) {
    println!(
        "received {} messages, {} on {} connections",
        number::count(report.messages),
        number::bytes(report.bytes as f64),
        report.connections,
    );
    if let Some(latency) = &report.latency_us {
        let ms = |us: f64| number::millis(us / 1e3);
        println!(
            "delivery latency in ms: p50 {}, p90 {}, p97 {}, p99 {}, p99.9 {}, max {}",
            ms(latency.p50),
            ms(latency.p90),
            ms(latency.p97),
            ms(latency.p99),
            ms(latency.p99_9),
            ms(latency.max),
        );
    }
    for stream in report
        .streams
        .iter()
        .filter(|stream| stream.fault.is_some())
    {
        eprintln!("pillion: {stream}");
    }
}
