use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Where and what to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveConfig {
    /// Address to listen on; port 0 lets the kernel choose one.
    pub listen: SocketAddr,
    /// Finish when this many connections, at least 1, have closed, wrong ones included; `None`
    /// goes on until stopped.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Keep a record of every message (24 bytes each). The report's quantiles are then exact,
    /// otherwise good to three significant digits.
    #[serde(default)]
    pub records: bool,
}
