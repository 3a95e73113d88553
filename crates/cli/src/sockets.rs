//! `pillion sockets`: TCP sockets over time.

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use pillion_host::Ticks;
use pillion_records::Writer;
use pillion_settings::BadInput;
use pillion_settings::times::{parse_interval, parse_s};
use pillion_sockets::{Sample, Sockets};

use crate::netns::NetnsArgs;
use crate::stop;

/// Sample TCP connections over time: congestion window, packets in flight, RTT, retransmissions
///
/// Asks the kernel for all connections of this network namespace (or --netns) at fixed times, and
/// prints a line for each: no application notices. Ends with Ctrl-C or after --duration.
#[derive(clap::Args)]
pub struct Args {
    /// Milliseconds between two samples, 1 to 86400000
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = parse_interval)]
    interval: Duration,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_s)]
    duration: Option<Duration>,

    /// Only connections with this port, at either end
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,

    #[command(flatten)]
    netns: NetnsArgs,

    /// Print a line of JSON for each sample
    #[arg(long)]
    json: bool,

    /// Write the samples to FILE, all that is known of each; compressed if it ends in .zst
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    csv: Option<PathBuf>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if let Some(duration) = self.duration.filter(|it| *it < self.interval) {
            let why = format!(
                "--duration of {duration:?} is shorter than the --interval of {:?}, so that no \
                 sample may fall into it; give a longer one",
                self.interval
            );
            return Err(BadInput(why).into());
        }
        let mut sockets = self.netns.open()?.enter(Sockets::open)??;
        let path = self.csv.as_ref();
        let failed = || {
            format!(
                "write {}",
                path.map_or_else(String::new, |path| path.display().to_string())
            )
        };
        let mut csv = path
            .map(|path| Writer::create(path))
            .transpose()
            .with_context(failed)?;
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
            samples.retain(|sample| self.is_wanted(sample));
            match &mut csv {
                Some(csv) => csv.write(&samples).with_context(failed)?,
                None => match self.print(&samples, first_ns) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                    result => result.context("print the samples")?,
                },
            }
            let next = Duration::from_nanos(at_ns - first_ns) + self.interval;
            if self.duration.is_some_and(|duration| next > duration) {
                break;
            }
        }
        csv.map(Writer::finish).transpose().with_context(failed)?;
        Ok(ExitCode::SUCCESS)
    }

    fn is_wanted(&self, sample: &Sample) -> bool {
        let ports = [sample.local.port(), sample.peer.port()];
        self.ports.is_empty() || ports.iter().any(|port| self.ports.contains(port))
    }

    fn print(&self, samples: &[Sample], first_ns: u64) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for sample in samples {
            if self.json {
                writeln!(out, "{}", serde_json::to_string(sample)?)?;
            } else {
                writeln!(out, "{}", line(sample, first_ns))?;
            }
        }
        out.flush()
    }
}

/// A sample for people; times in milliseconds.
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
