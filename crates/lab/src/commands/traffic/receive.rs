use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print_json, print_line};
use pillion_cli::stop;
use pillion_lab::settings::parse_host_port;
use pillion_lab::settings::traffic::{ReceiverOptions, to_bad_input};
use pillion_lab::traffic::{ReceiveConfig, ReceiveReport, Receiver};
use pillion_stats::report::number;

use crate::commands::progress::Progress;
use crate::commands::records_output::RecordsOutput;

/// Receive streams, verify every byte, and measure each message's delivery latency
///
/// The latency is from the sender's write to the receiver's read. Both use one clock, so they must
/// run on the same host, in any network namespaces. The exit status is 1 if data was missing or
/// wrong.
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on; port 0 for any free one
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_port)]
    listen: SocketAddr,

    /// Stop after this many connections have closed, or streams of datagrams have ended [default:
    /// run until Ctrl-C]
    #[arg(long, value_name = "N")]
    streams: Option<usize>,

    /// Also receive UDP datagrams at the same port; they are read immediately, without responses
    #[arg(long)]
    datagrams: bool,

    #[command(flatten)]
    receiving: ReceiverOptions,

    /// Write a CSV record of every message to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let behaviour = self.receiving.behaviour().map_err(to_bad_input)?;
        let stop = stop::on_signal()?;
        let file = self.records.as_ref();
        let file = file.map(|path| RecordsOutput::to("--records", path));
        let file = file.transpose()?;
        let receiver = Receiver::bind(ReceiveConfig {
            listen: self.listen,
            streams: self.streams,
            datagrams: self.datagrams,
            records: self.records.is_some(),
        })?
        .with_behaviour(behaviour)?;
        log::info!("listening on {}", receiver.local_addr());
        let progress = Progress::watch("received", None, receiver.progress());
        let received = receiver.run(&stop);
        progress.finish();
        let received = received?;
        if let Some(mut file) = file {
            file.write(&received.records)?;
            file.finish()?;
        }
        let report = &received.report;
        if self.json {
            print_json(report)?;
        } else {
            print(report)?;
        }
        let is_complete = (report.corrupt, report.incomplete, report.broken) == (0, 0, 0);
        Ok(if is_complete {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn print(report: &ReceiveReport) -> Result<()> {
    print_line!(
        "received {} {}, {} on {}",
        number::count(report.messages),
        number::plural(report.messages, "message"),
        number::bytes(report.bytes as f64),
        number::counted(report.connections as u64, "connection"),
    )?;
    if let Some(latency) = &report.latency_us {
        print_line!("delivery latency in ms: {}", super::latency(latency))?;
    }
    let faults = [
        (report.corrupt, "delivered a wrong byte"),
        (report.incomplete, "ended too early"),
        (report.broken, "failed"),
    ];
    for (count, what) in faults.into_iter().filter(|(count, _)| *count > 0) {
        print_line!("{} {what}", number::counted(count as u64, "connection"))?;
    }
    for stream in report
        .streams
        .iter()
        .filter(|stream| stream.fault.is_some())
    {
        log::warn!("{stream}");
    }
    Ok(())
}
