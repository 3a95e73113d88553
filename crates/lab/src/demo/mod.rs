//! Plain TCP beside pillion: two runs of one experiment, made side by side.

mod report;

use std::fmt;
use std::path::Path;

use pillion_stats::measure::Percentile;
use pillion_stats::report::Distribution;
use serde::Serialize;

use crate::path::{Counts, Ledger};
use crate::run::{GroupBundled, PATH_FILE};
use crate::settings::experiment::{Limit, Loss, Run};
use crate::store::StoredRun;
use crate::{Error, kernel_release, traffic};

pub use report::{demo_page, demo_table};

/// What the demo found.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// The bundled run; the plain one is alike, but for the bundling.
    pub run: Run,
    /// Release of the kernel that the demo ran on.
    pub kernel: String,
    /// The run with plain TCP.
    pub plain: Side,
    /// The run with bundling.
    pub pillion: Side,
}

impl Demo {
    /// Takes what the plain and the bundled run left in their folders. Both were made on this
    /// kernel with pillion's own path.
    ///
    /// # Errors
    /// [`Error::Void`] if a byte was lost or wrong; [`Error::File`].
    pub fn read(run: &Run, plain: &Path, pillion: &Path) -> Result<Self, Error> {
        Ok(Self {
            run: run.clone(),
            kernel: kernel_release(),
            plain: Side::read("plain TCP", plain)?,
            pillion: Side::read("pillion", pillion)?,
        })
    }
}

/// The demo's run in a few numbers.
#[derive(Debug)]
pub struct Setting<'a> {
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
    /// Seconds of sending.
    seconds: f64,
    /// Packets that may wait where the path has a rate.
    queue: u32,
    /// Congestion control of all streams.
    congestion: &'a str,
}

impl<'a> Setting<'a> {
    /// Takes it from a run of one group; what the run does not say is 0.
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

impl fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{0} plain and {0} bundled streams, {1} B each {2} ms, RTT {3} ms, loss {4} %, {5} s",
            self.streams,
            self.size,
            self.itt_ms,
            self.rtt_ms,
            (self.loss * 1e8).round() / 1e6,
            self.seconds,
        )
    }
}

/// What the streams of one run experienced.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Messages delivered; every byte of them was verified.
    pub messages: u64,
    /// Delivery latency in milliseconds: from the application's write to the other
    /// application's read.
    #[serde(rename = "latency_ms", serialize_with = "quantiles")]
    pub latency: Distribution,
    /// Segments that TCP retransmitted.
    pub retransmissions: u64,
    /// The path's counts of the data direction.
    pub path: Counts,
    /// By how much messages were handed over late, 99th percentile, in microseconds.
    pub send_error_p99_us: f64,
    /// What the bundler counted, in the bundled run.
    pub bundler: Option<GroupBundled>,
}

impl Side {
    /// Takes what a run of one group left; `name` stands in messages.
    fn read(name: &str, folder: &Path) -> Result<Self, Error> {
        let void = |why: &str| Error::Void(format!("{name}: {why}"));
        let run = StoredRun::read(folder)?.ok_or_else(|| void("it left no folder"))?;
        let ledger: Ledger = run.json(PATH_FILE)?;
        if let Some(device) = ledger.device_gone {
            return Err(void(&format!("the device {device} vanished")));
        }
        let groups = run.groups_with_messages()?;
        let latencies = groups.iter().flat_map(|group| &group.streams);
        let latencies = latencies.flat_map(|stream| stream.delivery_ms.iter().copied());
        let summary = run.summary()?;
        let files = run.streams()?;
        let ([told], [file]) = (&summary.groups[..], &files[..]) else {
            return Err(void("it has not one group"));
        };
        let mut faults = file
            .received
            .streams
            .iter()
            .filter_map(|it| it.fault.as_ref());
        if let Some(fault) = faults.next() {
            return Err(void(&format!("a stream was not whole: {fault}")));
        }
        if told.received != told.sent || told.failed > 0 {
            let why = format!("{} of {} messages came", told.received, told.sent);
            return Err(void(&why));
        }
        let uncounted = || void("the kernel does not count retransmissions");
        Ok(Self {
            messages: told.received,
            latency: Distribution::new(latencies),
            retransmissions: told.retransmissions.ok_or_else(uncounted)?,
            path: ledger.forward,
            send_error_p99_us: file.sent.send_error_us.p99,
            bundler: run.bundled()?.pop(),
        })
    }
}

fn quantiles<S: serde::Serializer>(
    latency: &Distribution,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        Percentile::LATENCY
            .iter()
            .map(|percentile| (percentile.name, latency.quantile(percentile.share))),
    )
}
