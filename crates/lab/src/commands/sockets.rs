//! `pillion-lab sockets`: samples of TCP sockets.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_bpf::host::Ticks;
use pillion_cli::print::print_if_read;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::policy::Ports;
use pillion_cli::settings::times::{parse_duration, parse_interval};
use pillion_cli::stop;
use pillion_lab::sockets::{Sample, Sockets};

use crate::commands::netns::NetnsArgs;
use crate::commands::records_output::RecordsOutput;

/// Sample TCP connections: congestion window, packets in flight, RTT, retransmissions
///
/// Reads all connections of this network namespace (or --netns) from the kernel at fixed times, and
/// prints a line for each. Applications are not affected. Runs until Ctrl-C or for --duration.
#[derive(clap::Args)]
pub struct Args {
    /// Time between two samples, 1ms to 1d
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Only connections with this port at either end, or with a port of this range, as in
    /// 8000-8100; may be repeated
    #[arg(long = "port", value_name = "PORTS")]
    ports: Vec<Ports>,

    #[command(flatten)]
    netns: NetnsArgs,

    /// Print one line of JSON per sample
    #[arg(long)]
    json: bool,

    /// Write the samples with all their fields to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    csv: Option<PathBuf>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if let Some(duration) = self.duration.filter(|it| *it < self.interval) {
            let why = format!(
                "--duration of {duration:?} is shorter than the --interval of {:?}: there may be no \
                 sample; give a longer duration",
                self.interval
            );
            return Err(BadInput(why).into());
        }
        let mut sockets = self.netns.open()?.enter(Sockets::open)??;
        let csv = self.csv.as_ref();
        let csv = csv.map(|path| RecordsOutput::to("--csv", path));
        let mut csv = csv.transpose()?;
        let stop = stop::on_signal()?;
        let mut ticks = Ticks::every(self.interval);
        let mut first_ns = None;
        loop {
            let at_ns = ticks.next_ns();
            if !stop::sleep_until(at_ns, &stop) {
                break;
            }
            let first_ns = *first_ns.get_or_insert(at_ns);
            let mut samples = sockets.sample(at_ns)?;
            samples.retain(|sample| self.is_selected(sample));
            match &mut csv {
                Some(csv) => csv.write(&samples)?,
                None if print_if_read(&self.lines(&samples, first_ns)?)? => {}
                None => break,
            }
            let next = Duration::from_nanos(at_ns - first_ns) + self.interval;
            if self.duration.is_some_and(|duration| next > duration) {
                break;
            }
        }
        csv.map(RecordsOutput::finish).transpose()?;
        Ok(ExitCode::SUCCESS)
    }

    fn is_selected(&self, sample: &Sample) -> bool {
        let ports = [sample.local.port(), sample.peer.port()];
        let contains_port = |range: &Ports| ports.iter().any(|port| range.0.contains(port));
        self.ports.is_empty() || self.ports.iter().any(contains_port)
    }

    fn lines(&self, samples: &[Sample], first_ns: u64) -> Result<String> {
        let mut lines = String::new();
        for sample in samples {
            lines += &match self.json {
                true => serde_json::to_string(sample)?,
                false => line(sample, first_ns),
            };
            lines.push('\n');
        }
        Ok(lines)
    }
}

/// Formats a sample; times are in milliseconds.
fn line(sample: &Sample, first_ns: u64) -> String {
    let count = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let ms = |us: Option<u32>| {
        us.map_or_else(
            || "-".to_owned(),
            |us| format!("{:.1}", f64::from(us) / 1e3),
        )
    };
    format!(
        "{:8.3} s  {} > {}  {} {}  cwnd {} ssthresh {} in-flight {} lost {} retrans {}  \
         rtt {}/{} min {} rto {} ms",
        (sample.at_ns - first_ns) as f64 / 1e9,
        sample.local,
        sample.peer,
        sample.state.label(),
        sample.recovery.label(),
        count(sample.cwnd_packets),
        count(sample.ssthresh_packets),
        count(sample.in_flight_packets),
        count(sample.lost_packets),
        count(sample.total_retrans),
        ms(sample.rtt_us),
        ms(sample.rttvar_us),
        ms(sample.min_rtt_us),
        ms(sample.rto_us),
    )
}
