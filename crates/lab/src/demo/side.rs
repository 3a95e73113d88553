use std::path::Path;

use crate::path::{Counts, Ledger};
use pillion_stats::measure::Percentile;
use pillion_stats::report::Distribution;
use serde::Serialize;

use crate::Error;
use crate::run::{GroupBundled, PATH_FILE};
use crate::store::StoredRun;

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
    pub(super) fn read(name: &str, folder: &Path) -> Result<Self, Error> {
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
