use std::time::Duration;

/// What a run writes down, beside the traffic's own records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Bytes kept of each packet, in a trace at the bridge and one at the receiver; `None` takes
    /// no traces.
    pub traces: Option<u32>,
    /// The time between two samples of every stream's socket; `None` takes none.
    pub sockets: Option<Duration>,
    /// Every packet that enters and leaves the bottleneck's queue.
    pub queue: bool,
    /// Every message's delivery latency.
    pub records: bool,
}

impl Default for Measure {
    /// Traces of the headers, samples ten times a second, the queue, and the records.
    fn default() -> Self {
        Self {
            traces: Some(128),
            sockets: Some(Duration::from_millis(100)),
            queue: true,
            records: true,
        }
    }
}
