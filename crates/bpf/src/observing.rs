use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::contract::types;

/// What is observed of connections, and which of them are bundled while they are: those of the
/// bundled arm, drawn at random at a connection's first packet. For the others all is done as for
/// these (record, limits, tests of thinness), but bundles are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observing {
    /// How much of what is drawn is bundled, of a million.
    pub bundled_ppm: u32,
    /// The key of the draw. With the same one the same is drawn again.
    pub key: [u64; 2],
    /// Which connections share a draw.
    pub draw_by: DrawBy,
    /// Microseconds beyond the least RTT that are not called late: a receiver may take so long to
    /// acknowledge.
    pub grace_us: u32,
    /// Microseconds of ACK latency beyond which a segment stalls.
    pub stall_us: u32,
}

impl Observing {
    pub(crate) fn bundled_of_2_32(&self) -> u64 {
        (u64::from(self.bundled_ppm) << 32).div_ceil(1_000_000)
    }
}

/// Which connections share a draw, and so an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrawBy {
    /// Connections share a draw with those to the same peer: its IPv4 address, or its IPv6 network (/64). Who connects anew is
    /// in the same arm.
    #[default]
    Peer,
    /// Each connection is drawn for itself, by both endpoints. For peers behind one address.
    Connection,
}

impl DrawBy {
    pub(crate) fn raw(self) -> types::draw_by {
        match self {
            Self::Peer => types::draw_by::DRAW_BY_PEER,
            Self::Connection => types::draw_by::DRAW_BY_CONNECTION,
        }
    }
}

/// As it is said on the command line.
impl fmt::Display for DrawBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Connection => "connection",
        })
    }
}

/// On which side of a comparison a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The connection's segments are bundled.
    Bundled,
    /// Bundles are held back.
    Plain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_all_that_half_a_hash_can_be() {
        let bundled = |bundled_ppm| {
            let observing = Observing {
                bundled_ppm,
                key: [0; 2],
                draw_by: DrawBy::default(),
                grace_us: 0,
                stall_us: 0,
            };
            observing.bundled_of_2_32()
        };
        let bundled = [0, 500_000, 1_000_000].map(bundled);
        assert_eq!(bundled, [0, 1 << 31, 1 << 32]);
    }
}
