//! What to measure.

use clap::Parser;

/// Losses that the bundler finds, misses, and finds where there were none.
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo bench -p pillion --bench detection --")]
pub struct Args {
    /// Seconds of sending at each loss rate
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,

    /// Shares of packets lost in the data direction, in per cent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [0.0, 2.0, 8.0])]
    pub losses: Vec<f64>,

    /// Previous segments in a bundle at most; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_packets: u32,

    /// Inter-transmission time in milliseconds; the standard deviation is a tenth
    #[arg(long, value_name = "MS", default_value_t = 30.0)]
    pub itt: f64,

    /// Round-trip time in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub rtt: f64,

    /// Streams on each path, of 120 B messages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub streams: u32,

    /// Seed of losses and inter-transmission times, the same on each path
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Given by cargo
    #[arg(long, hide = true)]
    pub bench: bool,
}
