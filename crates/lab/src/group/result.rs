use pillion_measure::Percentile;
use pillion_path::Counts;
use pillion_report::Distribution;
use serde::Serialize;
use serde_json::Value;

/// What one group of streams experienced.
#[derive(Debug, Clone, Serialize)]
pub struct GroupResult {
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
    /// What the bundler counted, in the bundled group.
    pub bundler: Option<Value>,
    /// The command that sent the messages.
    pub command: String,
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
