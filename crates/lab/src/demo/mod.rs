//! Plain TCP, bundling as published, and pillion: three runs of one experiment at the same time.

mod report;

use std::fmt;
use std::path::{Path, PathBuf};

use pillion_stats::measure::Percentile;
use pillion_stats::report::SortedSamples;
use serde::Serialize;

use crate::path::{DirectionStats, PathStats};
use crate::run::{GroupBundlingTotals, PATH_FILE};
use crate::settings::experiment::{Limit, Loss, Run};
use crate::store::StoredRun;
use crate::{Error, kernel_release, traffic};

pub use report::{demo_page, demo_table};

/// Result of the demo.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// pillion's run; the others differ only in the bundling.
    pub run: Run,
    /// Release of the kernel.
    pub kernel: String,
    /// Run with plain TCP.
    pub plain: GroupOutcome,
    /// Run that bundles as published: previous segment, window reductions, none of pillion's guards.
    pub published: GroupOutcome,
    /// Run with pillion's bundling.
    pub pillion: GroupOutcome,
}

impl Demo {
    /// Reads the folders of the runs, in the order of the fields. The runs used this kernel and
    /// pillion's own path.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a byte was lost or wrong; [`Error::File`].
    pub fn read(run: &Run, [plain, published, pillion]: &[PathBuf; 3]) -> Result<Self, Error> {
        Ok(Self {
            run: run.clone(),
            kernel: kernel_release(),
            plain: GroupOutcome::read("plain TCP", plain)?,
            published: GroupOutcome::read("as published", published)?,
            pillion: GroupOutcome::read("pillion", pillion)?,
        })
    }

    /// Groups in the order of the table.
    fn groups(&self) -> [&GroupOutcome; 3] {
        [&self.plain, &self.published, &self.pillion]
    }
}

/// Names of the groups.
const GROUPS: [&str; 3] = ["plain TCP", "as published", "pillion"];

/// Main settings of the demo's run.
#[derive(Debug)]
pub struct DemoSettings<'a> {
    /// Streams in each group.
    streams: u16,
    /// Payload of a message in bytes.
    size: f64,
    /// Mean inter-transmission time in milliseconds.
    itt_ms: f64,
    /// Standard deviation of the inter-transmission time in milliseconds.
    itt_sd_ms: f64,
    /// Round-trip time in milliseconds, half of it in each direction.
    rtt_ms: f64,
    /// Share of packets lost in the data direction, 0 to 1.
    loss: f64,
    /// Time of sending in seconds.
    seconds: f64,
    /// Maximum packets in the queue, if the path has a rate.
    queue: u32,
    /// Congestion control of all streams.
    congestion: &'a str,
}

impl<'a> DemoSettings<'a> {
    /// Reads the settings of a run with one group; missing ones are 0.
    #[must_use]
    pub fn of(run: &'a Run) -> Self {
        let traffic = run.group.values().next().map(|group| &group.traffic);
        let itt = traffic.and_then(|traffic| traffic.itt.as_ref());
        let size = traffic.and_then(|traffic| traffic.size.as_ref());
        Self {
            streams: traffic.map_or(0, |traffic| traffic.streams),
            size: size.map_or(0.0, traffic::Distribution::mean),
            itt_ms: itt.map_or(0.0, traffic::Distribution::mean),
            itt_sd_ms: match itt {
                Some(traffic::Distribution::Normal { sd, .. }) => *sd,
                _ => 0.0,
            },
            rtt_ms: run.path.rtt.as_secs_f64() * 1e3,
            loss: match run.path.forward.loss {
                Some(Loss::Uniform(share)) => share,
                _ => 0.0,
            },
            seconds: run.duration.0.as_secs_f64(),
            queue: match run.bottleneck.forward.limit {
                Some(Limit::Packets(packets)) => packets,
                _ => 0,
            },
            congestion: traffic
                .and_then(|traffic| traffic.congestion.as_deref())
                .unwrap_or_default(),
        }
    }
}

impl fmt::Display for DemoSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} streams in each group, {} B each {} ms, RTT {} ms, loss {} %, {} s",
            self.streams,
            self.size,
            self.itt_ms,
            self.rtt_ms,
            (self.loss * 1e8).round() / 1e6,
            self.seconds,
        )
    }
}

/// Results of one run's streams.
#[derive(Debug, Clone, Serialize)]
pub struct GroupOutcome {
    /// Delivered messages; every byte was verified.
    pub messages: u64,
    /// Delivery latency in milliseconds: from one application's write to the other one's read.
    #[serde(rename = "latency_ms", serialize_with = "quantiles")]
    pub latency: SortedSamples,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Packet counts of the data direction.
    pub path: DirectionStats,
    /// 99th percentile of the delay of messages against their schedule, in microseconds.
    pub send_error_p99_us: f64,
    /// Counters of pillion, in bundled runs.
    pub bundler: Option<GroupBundlingTotals>,
}

impl GroupOutcome {
    /// Reads the folder of a run with one group; `name` appears in messages.
    fn read(name: &str, folder: &Path) -> Result<Self, Error> {
        let failed = |why: &str| Error::Invalid(format!("{name}: {why}"));
        let run = StoredRun::read(folder)?.ok_or_else(|| failed("its folder is missing"))?;
        let ledger: PathStats = run.json(PATH_FILE)?;
        if let Some(device) = ledger.device_gone {
            return Err(failed(&format!("the device {device} disappeared")));
        }
        let groups = run.groups_with_messages()?;
        let latencies = groups.iter().flat_map(|group| &group.streams);
        let latencies = latencies.flat_map(|stream| stream.delivery_ms.iter().copied());
        let summary = run.summary()?;
        let files = run.streams()?;
        let ([group], [file]) = (&summary.groups[..], &files[..]) else {
            return Err(failed("expected one group"));
        };
        let mut faults = file
            .received
            .streams
            .iter()
            .filter_map(|it| it.fault.as_ref());
        if let Some(fault) = faults.next() {
            return Err(failed(&format!("a stream was incomplete: {fault}")));
        }
        if group.received != group.sent || group.failed > 0 {
            let why = format!("{} of {} messages arrived", group.received, group.sent);
            return Err(failed(&why));
        }
        let uncounted = || failed("the kernel does not count retransmissions");
        Ok(Self {
            messages: group.received,
            latency: SortedSamples::new(latencies),
            retransmissions: group.retransmissions.ok_or_else(uncounted)?,
            path: ledger.forward,
            send_error_p99_us: file.sent.send_error_us.p99,
            bundler: run.bundled()?.pop(),
        })
    }
}

fn quantiles<S: serde::Serializer>(
    latency: &SortedSamples,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        Percentile::LATENCY
            .iter()
            .map(|percentile| (percentile.name, latency.quantile(percentile.share))),
    )
}
