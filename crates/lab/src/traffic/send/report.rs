use hdrhistogram::Histogram;
use serde::Serialize;

use crate::traffic::latency::{Measured, Record, histogram, us};
use crate::traffic::plan::Traffic;
use crate::traffic::socket_info::TcpInfo;
use crate::traffic::wire::Message;
use crate::traffic::{Bundled, Quantiles};

/// What was sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SendReport {
    /// Messages that the kernel took whole.
    pub messages: u64,
    /// Bytes that the kernel took, the few that end each stream included.
    pub bytes: u64,
    /// Messages that met a full socket buffer and had to wait in the application; those of greedy
    /// streams, which always do, are not counted.
    pub blocked_writes: u64,
    /// How late messages were handed over; greedy streams never are.
    pub send_error_us: SendLateness,
    /// Answers that came, verified.
    pub answers: u64,
    /// From a message's handing over to its answer's last byte read, in microseconds; `None`
    /// without any answer.
    pub round_trip_us: Option<Quantiles>,
    /// Segments retransmitted, all streams together; `None` when the kernel does not say.
    pub retransmissions: Option<u64>,
    /// Payload bytes retransmitted, all streams together; `None` when the kernel does not say.
    pub bytes_retrans: Option<u64>,
    /// Segments sent, all streams together; `None` when the kernel does not say.
    pub segs_out: Option<u64>,
    /// Streams that did not end with the receiver's close after all was sent.
    pub failed: usize,
    /// Each group, in order.
    pub groups: Vec<GroupSent>,
    /// Each stream, in order.
    pub streams: Vec<StreamSent>,
}

/// What the streams of one group sent together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSent {
    /// The group's name.
    pub name: String,
    /// What the group's streams do.
    pub kind: &'static str,
    /// Number of streams.
    pub streams: usize,
    /// Streams that connected.
    pub connected: usize,
    /// Messages that the kernel took whole.
    pub messages: u64,
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// Answers that came, verified.
    pub answers: u64,
    /// Segments retransmitted; `None` when the kernel does not say.
    pub retransmissions: Option<u64>,
    /// Streams that did not end with the receiver's close after all was sent.
    pub failed: usize,
}

/// The actual hand-over time of a message minus the time it was due, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SendLateness {
    /// Median.
    pub p50: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// What one stream sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSent {
    /// The stream's number, from 0.
    pub stream: u32,
    /// The number of the stream's group, from 0.
    pub group: usize,
    /// Whether its connection was ever established.
    pub connected: bool,
    /// Messages that the kernel took whole.
    pub messages: u64,
    /// Bytes that the kernel took, the few that end the stream included.
    pub bytes: u64,
    /// Messages that met a full socket buffer and had to wait in the application.
    pub blocked_writes: u64,
    /// Answers that came, verified.
    pub answers: u64,
    /// Of a flow that ended well, from when it began to connect until the receiver had read all
    /// and its close had come, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_us: Option<f64>,
    /// What TCP counted, read when the connection had ended and before the socket was closed.
    #[serde(flatten)]
    pub tcp: TcpInfo,
    /// What pillion counted, read with it; `None` where it did not bundle the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundling: Option<Bundled>,
    /// Why the stream failed; `None` when the receiver closed after all was sent.
    pub error: Option<String>,
}

impl StreamSent {
    pub(super) fn new(stream: u32, group: usize) -> Self {
        Self {
            stream,
            group,
            connected: false,
            messages: 0,
            bytes: 0,
            blocked_writes: 0,
            answers: 0,
            completion_us: None,
            tcp: TcpInfo::default(),
            bundling: None,
            error: None,
        }
    }
}

impl SendReport {
    pub(super) fn new(
        traffic: &Traffic,
        streams: Vec<StreamSent>,
        measured: &Measurements,
    ) -> Self {
        let late_us = |share| us(measured.late_ns.value_at_quantile(share));
        let tcp = |field: fn(&TcpInfo) -> Option<u64>| streams.iter().map(|s| field(&s.tcp)).sum();
        let groups = traffic.groups.iter().enumerate().map(|(index, group)| {
            let all: Vec<_> = streams.iter().filter(|s| s.group == index).collect();
            GroupSent {
                name: group.name.clone(),
                kind: group.kind.name(),
                streams: all.len(),
                connected: all.iter().filter(|s| s.connected).count(),
                messages: all.iter().map(|s| s.messages).sum(),
                bytes: all.iter().map(|s| s.bytes).sum(),
                answers: all.iter().map(|s| s.answers).sum(),
                retransmissions: all
                    .iter()
                    .map(|s| s.tcp.retransmissions.map(u64::from))
                    .sum(),
                failed: all.iter().filter(|s| s.error.is_some()).count(),
            }
        });
        Self {
            messages: streams.iter().map(|s| s.messages).sum(),
            bytes: streams.iter().map(|s| s.bytes).sum(),
            blocked_writes: streams.iter().map(|s| s.blocked_writes).sum(),
            send_error_us: SendLateness {
                p50: late_us(0.5),
                p99: late_us(0.99),
                max: late_us(1.0),
            },
            answers: streams.iter().map(|s| s.answers).sum(),
            round_trip_us: Quantiles::of_histogram(&measured.round_trip_ns),
            retransmissions: tcp(|tcp| tcp.retransmissions.map(u64::from)),
            bytes_retrans: tcp(|tcp| tcp.bytes_retrans),
            segs_out: tcp(|tcp| tcp.segs_out.map(u64::from)),
            failed: streams.iter().filter(|s| s.error.is_some()).count(),
            groups: groups.collect(),
            streams,
        }
    }
}

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
