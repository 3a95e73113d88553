use serde::{Deserialize, Serialize};

/// What the sender asks of TCP for its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Nagle's algorithm: true holds small segments back while others are unacknowledged. Off
    /// (`TCP_NODELAY`) unless asked for.
    pub nagle: bool,
    /// Linear time-outs for thin streams (`TCP_THIN_LINEAR_TIMEOUTS`, option 16, Linux 2.6.34;
    /// LCN 2008 section III): the first six time-outs of a thin stream do not back off.
    pub linear_timeouts: bool,
    /// Congestion control; `None` leaves the host's default.
    pub congestion: Option<String>,
    /// Asks pillion for bundling, or declines it; `None` leaves it to pillion's rules
    /// (`PILLION_BUNDLE`, docs/socket-option.md). Without a pillion at work either is an error.
    pub pillion: Option<bool>,
    /// Previous segments in a bundle at most, 0 as many as pillion's rules allow
    /// (`PILLION_MAX_PACKETS`).
    pub max_packets: Option<u32>,
}
