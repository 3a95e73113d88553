use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_report::number;
use pillion_traffic::{SendConfig, SendReport, Sender};

use crate::progress::Progress;
use crate::stop;
use crate::times::{Itt, parse_itt, parse_ms, parse_s};

/// Send thin streams to `pillion traffic receive`
///
/// All connections are made first; then every stream sends one message each
/// inter-transmission time. Nagle's algorithm is off.
#[derive(clap::Args)]
pub struct Args {
    /// The receiver
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,

    /// TCP connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: usize,

    /// Inter-transmission time in milliseconds, and its standard deviation
    #[arg(long, value_name = "MS[:SD]", default_value = "100:10", value_parser = parse_itt)]
    itt: Itt,

    /// Payload of a message in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 120)]
    size: usize,

    /// Seconds of sending
    #[arg(long, value_name = "S", default_value = "10", value_parser = parse_s)]
    duration: Duration,

    /// Milliseconds between the starts of two streams [default: the inter-transmission
    /// time divided by the number of streams]
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    ramp_up: Option<Duration>,

    /// Congestion control of the connections [default: the host's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Seed of inter-transmission times and content
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Seconds that all connections together may take to establish
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_s)]
    connect_timeout: Duration,

    /// Seconds that what is still on its way may take after the last message
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_s)]
    drain_timeout: Duration,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let stop = stop::on_signal()?;
        let sender = Sender::new(self.config())?;
        let progress = Progress::watch("sending", Some(sender.planned()), sender.progress());
        let report = sender.run(&stop);
        progress.finish();
        let report = report?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print(&report);
        }
        Ok(if report.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn config(&self) -> SendConfig {
        SendConfig {
            to: self.to,
            streams: self.streams,
            itt: self.itt.mean,
            itt_sd: self.itt.sd,
            size: self.size,
            duration: self.duration,
            ramp_up: self.ramp_up,
            congestion: self.congestion.clone(),
            seed: self.seed,
            connect_timeout: self.connect_timeout,
            drain_timeout: self.drain_timeout,
        }
    }
}

fn print(report: &SendReport) {
    println!(
        "sent {} messages, {} on {} streams",
        number::count(report.messages),
        number::bytes(report.bytes as f64),
        report.streams.len(),
    );
    if let Some(retransmissions) = report.retransmissions {
        println!("retransmissions {}", number::count(retransmissions));
    }
    let late = &report.send_error_us;
    println!(
        "handed over late by p50 {:.0}, p99 {:.0}, max {:.0} us",
        late.p50, late.p99, late.max
    );
    if report.blocked_writes > 0 {
        println!(
            "{} messages met a full socket buffer",
            number::count(report.blocked_writes)
        );
    }
    for stream in &report.streams {
        if let Some(error) = &stream.error {
            eprintln!("pillion: stream {}: {error}", stream.stream);
        }
    }
}
