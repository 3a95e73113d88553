use std::ops;

use super::group::Group;

/// Options of a [`Meter`](super::Meter).
#[derive(Debug, Clone, PartialEq)]
pub struct MeterOptions {
    /// Slice width in nanoseconds, at least 1.
    pub slice_ns: i64,
    /// Groups of connections.
    pub groups: Vec<Group>,
    /// The rate that each connection is due, headers included, in bit/s; used for fairness.
    pub optimum_bit_per_s: Option<f64>,
    /// The rate that each connection of a group is due, by group name, in bit/s. The first matching
    /// group counts.
    pub optimum_of_group: Vec<(String, f64)>,
    /// Period of the test, in nanoseconds since 1970 by the clock of the sender's trace. A
    /// connection that lasted less than half of it was dropped (thesis, table 4.1). `None` means
    /// the whole trace, which may include a draining backlog.
    pub test_ns: Option<ops::Range<i64>>,
    /// Whether connections with the same addresses and ports are one stream that connected again
    /// (`count3way`; thesis, section 3.4.5), and not streams of their own that reused a port.
    pub streams_by_address: bool,
}

impl Default for MeterOptions {
    /// Slices of one second.
    fn default() -> Self {
        Self {
            slice_ns: 1_000_000_000,
            groups: Vec::new(),
            optimum_bit_per_s: None,
            optimum_of_group: Vec::new(),
            test_ns: None,
            streams_by_address: false,
        }
    }
}
