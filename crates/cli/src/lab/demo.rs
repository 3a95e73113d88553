use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use pillion_bundler::{Reaction, ThinTest};
use pillion_lab::{GroupConfig, demo_page, demo_table, run_demo};
use pillion_settings::times::{Itt, parse_ms, parse_s};

use crate::print::{print_json, print_line};

/// Compare thin streams with and without bundling, on a lossy path made on this host
///
/// Two groups of real TCP streams run side by side, each on a path of its own with the same
/// delay and loss: one plain, one under `pillion run`. Prints the comparison and writes a
/// report.
#[derive(clap::Args)]
pub struct Args {
    /// Streams in each group
    #[arg(long, value_name = "N", default_value_t = 20)]
    streams: usize,

    /// Inter-transmission time in milliseconds, and its standard deviation
    #[arg(long, value_name = "MS[:SD]", default_value = "30:3")]
    itt: Itt,

    /// Payload of a message in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 120)]
    size: usize,

    /// Round-trip time in milliseconds
    #[arg(long, value_name = "MS", default_value = "150", value_parser = parse_ms)]
    rtt: Duration,

    /// Packets lost in the data direction, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    loss: f64,

    /// Seconds of sending
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_s)]
    duration: Duration,

    /// Rate of each path in Mbit/s [default: no limit]
    #[arg(long, value_name = "MBIT/S")]
    rate: Option<f64>,

    /// Packets that may wait for that rate
    #[arg(long, value_name = "PACKETS", default_value_t = 63)]
    queue: usize,

    /// Congestion control of all streams
    #[arg(long, value_name = "NAME", default_value = "reno")]
    congestion: String,

    /// Previous segments that ride along at most; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_packets: u32,

    /// Bytes of payload in a segment with its bundle at most; 0: the MSS alone limits
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    max_bytes: u32,

    /// When to bundle, as for `pillion run`
    #[arg(long, value_name = "TEST", default_value_t)]
    thin: ThinTest,

    /// What follows from losses that bundles hid, as for `pillion run`
    #[arg(long, value_name = "REACTION", value_enum, default_value_t)]
    reaction: Reaction,

    /// Seed of losses and inter-transmission times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where to write the report
    #[arg(long, value_name = "FILE", default_value = "pillion-demo.html")]
    report: PathBuf,

    /// Print the numbers as JSON instead of the table
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let writing = || format!("write --report {}", self.report.display());
        fs::write(&self.report, "").with_context(writing)?;
        let pillion = std::env::current_exe().context("find the pillion binary")?;
        let demo = run_demo(&self.config(), &pillion)?;
        fs::write(&self.report, demo_page(&demo).to_html()).with_context(writing)?;
        if self.json {
            print_json(&demo)?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = &demo.config;
        print_line!(
            "{0} plain and {0} bundled streams, {1} B each {2} ms, RTT {3} ms, loss {4} %, {5} s",
            config.streams,
            config.size_bytes,
            config.itt_ms,
            config.rtt_ms,
            self.loss,
            config.duration_s,
        )?;
        print_line!("{}", demo_table(&demo).to_text(false))?;
        let report = self.report.canonicalize().unwrap_or(self.report);
        print_line!("report: {}", report.display())?;
        Ok(ExitCode::SUCCESS)
    }

    fn config(&self) -> GroupConfig {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let reaction = self.reaction.to_possible_value().expect("none is hidden");
        let mut bundling = [
            ("--thin", self.thin.to_string()),
            ("--max-packets", self.max_packets.to_string()),
            ("--max-bytes", self.max_bytes.to_string()),
            ("--reaction", reaction.get_name().to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect::<Vec<_>>();
        if self.reaction == Reaction::None {
            // The paths are the demo's own: nobody else can be harmed.
            bundling.push("--unsafe".to_owned());
        }
        GroupConfig {
            streams: self.streams,
            size_bytes: self.size,
            itt_ms: ms(self.itt.mean),
            itt_sd_ms: ms(self.itt.sd),
            rtt_ms: ms(self.rtt),
            loss: self.loss / 100.0,
            duration_s: self.duration.as_secs_f64(),
            rate_bps: self.rate.map(|mbit| (mbit * 1e6) as u64),
            queue_packets: self.queue,
            congestion: self.congestion.clone(),
            seed: self.seed,
            bundling: Some(bundling),
        }
    }
}
