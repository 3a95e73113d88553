use std::time::Duration;

use serde::Serialize;

use crate::contract::types;

/// When a stream counts as thin, so that it may bundle (LCN 2015, section III.B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinTest {
    /// Dynamic limit: packets in flight x `itt_min` < minimum RTT.
    Dpifl {
        /// The shortest inter-transmission time of a thin stream; microseconds count.
        itt_min: Duration,
    },
    /// Static limit: at most so many packets in flight.
    Spifl {
        /// The limit, in packets.
        limit: u32,
    },
    /// Every stream; for experiments.
    Always,
}

impl Default for ThinTest {
    /// DPIFL with 10 ms, the lowest value that the paper justifies (from RFC 4828).
    fn default() -> Self {
        Self::Dpifl {
            itt_min: Duration::from_millis(10),
        }
    }
}

/// How a connection is bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Options {
    /// When it may bundle.
    pub thin: ThinTest,
    /// Previous segments in one bundle at most; 0 for no limit. Default 1, as the
    /// paper recommends (LCN 2015, section VI).
    pub max_packets: u32,
    /// Bytes of payload in a segment with its bundle at most; 0 for no limit. The
    /// MSS limits it in any case.
    pub max_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            thin: ThinTest::default(),
            max_packets: 1,
            max_bytes: 0,
        }
    }
}

impl From<Options> for types::options {
    fn from(options: Options) -> Self {
        let mut raw = Self {
            max_packets: options.max_packets,
            max_bytes: options.max_bytes,
            ..Self::default()
        };
        raw.thin_test = match options.thin {
            ThinTest::Dpifl { itt_min } => {
                raw.itt_min_us = u32::try_from(itt_min.as_micros()).unwrap_or(u32::MAX);
                types::thin_test::THIN_DPIFL
            }
            ThinTest::Spifl { limit } => {
                raw.spifl = limit;
                types::thin_test::THIN_SPIFL
            }
            ThinTest::Always => types::thin_test::THIN_ALWAYS,
        };
        raw
    }
}
