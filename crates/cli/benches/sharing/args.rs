//! What to measure.

use clap::Parser;

/// Greedy streams beside thin ones that bundle, at one bottleneck.
#[derive(Debug, Parser)]
#[command(name = "cargo bench -p pillion --bench sharing --")]
pub struct Args {
    /// Seconds of sending of each variant
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,

    /// Congestion controls of all streams
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["cubic", "reno"])]
    pub congestions: Vec<String>,

    /// Previous segments in a bundle at most; 0 for no limit
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 0])]
    pub limits: Vec<u32>,

    /// Greedy streams
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub greedy: usize,

    /// Thin streams, of 120 B messages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub thin: usize,

    /// Inter-transmission time of the thin ones in milliseconds; the standard deviation is a
    /// tenth
    #[arg(long, value_name = "MS", default_value_t = 30.0)]
    pub itt: f64,

    /// Seed of inter-transmission times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Given by cargo
    #[arg(long, hide = true)]
    pub bench: bool,
}
