//! What to measure.

use clap::Parser;

/// Delivery latency of plain TCP and of each reaction, side by side.
#[derive(Debug, Parser)]
#[command(name = "cargo bench -p pillion --bench reactions --")]
pub struct Args {
    /// Seconds of sending in each turn
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,

    /// Shares of packets lost in the data direction, in per cent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [0.5, 1.0, 2.0, 5.0, 10.0])]
    pub losses: Vec<f64>,

    /// Inter-transmission times in milliseconds; the standard deviation is a tenth
    #[arg(long, value_name = "MS", value_delimiter = ',', default_values_t = [10.0, 30.0, 100.0])]
    pub itts: Vec<f64>,

    /// Round-trip times in milliseconds
    #[arg(long, value_name = "MS", value_delimiter = ',', default_values_t = [50.0, 150.0])]
    pub rtts: Vec<f64>,

    /// Congestion controls
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["cubic", "reno"])]
    pub congestions: Vec<String>,

    /// Bundle without a limit, too
    #[arg(long)]
    pub no_limit: bool,

    /// Streams on each path, of 120 B messages
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub streams: usize,

    /// Messages per second that are carried at once, over all paths; what is beyond waits for
    /// its turn. Two quiet cores should carry the default
    #[arg(long, value_name = "N", default_value_t = 6000.0)]
    pub at_once: f64,

    /// Seed of losses and inter-transmission times, the same on each path
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Given by cargo
    #[arg(long, hide = true)]
    pub bench: bool,
}

impl Args {
    /// Previous segments in a bundle at most, 0 for no limit.
    pub fn limits(&self) -> &'static [u32] {
        match self.no_limit {
            true => &[1, 0],
            false => &[1],
        }
    }
}
