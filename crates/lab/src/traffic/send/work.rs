use hdrhistogram::Histogram;

use crate::traffic::clock::us;
use crate::traffic::quantiles::histogram;
use crate::traffic::record::{Measured, Record};
use crate::traffic::wire::Message;

const READ_LEN: usize = 64 << 10;

/// What the streams of one thread share.
pub(super) struct Work {
    /// Room for bytes to write.
    pub(super) out: Vec<u8>,
    /// Room for bytes read.
    pub(super) input: Vec<u8>,
    /// Room for the numbers of the streams whose sockets have changed.
    pub(super) ready: Vec<usize>,
    pub(super) measured: Measurements,
}

/// What they measure together, in nanoseconds.
pub(super) struct Measurements {
    /// How late messages were handed over.
    pub(super) late_ns: Histogram<u64>,
    /// From handing a message over to reading its answer's last byte.
    pub(super) round_trip_ns: Histogram<u64>,
    pub(super) records: Option<Vec<Record>>,
}

impl Work {
    pub(super) fn new(keep_records: bool) -> Self {
        Self {
            out: Vec::new(),
            input: vec![0; READ_LEN],
            ready: Vec::new(),
            measured: Measurements::new(keep_records),
        }
    }
}

impl Measurements {
    pub(super) fn new(keep_records: bool) -> Self {
        Self {
            late_ns: histogram(),
            round_trip_ns: histogram(),
            records: keep_records.then(Vec::new),
        }
    }

    /// An answer to the message handed over at `answer.sent_ns` has come.
    pub(super) fn answer(&mut self, stream: u32, answer: Message) {
        let latency_ns = answer.received_ns.saturating_sub(answer.sent_ns);
        self.round_trip_ns.saturating_record(latency_ns);
        if let Some(records) = &mut self.records {
            records.push(Record {
                measured: Measured::RoundTrip,
                stream,
                sequence: answer.sequence,
                size: answer.size,
                sent_ns: answer.sent_ns,
                latency_us: us(latency_ns),
            });
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        // Both have the same bounds.
        let _ = self.late_ns.add(other.late_ns);
        let _ = self.round_trip_ns.add(other.round_trip_ns);
        if let (Some(records), Some(more)) = (&mut self.records, other.records) {
            records.extend(more);
        }
    }
}
