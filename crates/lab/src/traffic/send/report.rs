use hdrhistogram::Histogram;
use serde::Serialize;

use crate::traffic::latency::{LatencyKind, Record, histogram, us};
use crate::traffic::plan::Traffic;
use crate::traffic::socket_info::TcpInfo;
use crate::traffic::wire::Message;
use crate::traffic::{BundlingStats, Quantiles};

/// The report of a sender.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SendReport {
    /// Messages that the kernel accepted completely.
    pub messages: u64,
    /// Bytes that the kernel accepted, including the few that end each stream.
    pub bytes: u64,
    /// Messages that waited in the application because the socket buffer was full; without greedy
    /// streams, whose messages always wait.
    pub blocked_writes: u64,
    /// Lateness of messages at their write; without greedy streams, whose messages are never late.
    pub send_error_us: SendLateness,
    /// Verified responses.
    pub answers: u64,
    /// Time from a message's write to the read of its response's last byte, in microseconds; `None`
    /// without responses.
    pub round_trip_us: Option<Quantiles>,
    /// Segments retransmitted on all streams; `None` if the kernel does not report it.
    pub retransmissions: Option<u64>,
    /// Payload bytes retransmitted on all streams; `None` if the kernel does not report it.
    pub bytes_retrans: Option<u64>,
    /// Segments sent on all streams; `None` if the kernel does not report it.
    pub segs_out: Option<u64>,
    /// Streams that did not end with the receiver's close after the last message.
    pub failed: usize,
    /// Each group, in order.
    pub groups: Vec<GroupSendReport>,
    /// Each stream, in order.
    pub streams: Vec<StreamSendReport>,
}

/// The sum over the streams of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSendReport {
    /// The group's name.
    pub name: String,
    /// The kind of the group's streams.
    pub kind: &'static str,
    /// Number of streams.
    pub streams: usize,
    /// Streams that connected.
    pub connected: usize,
    /// Messages that the kernel accepted completely.
    pub messages: u64,
    /// Bytes that the kernel accepted.
    pub bytes: u64,
    /// Verified responses.
    pub answers: u64,
    /// Segments retransmitted; `None` if the kernel does not report it.
    pub retransmissions: Option<u64>,
    /// Streams that did not end with the receiver's close after the last message.
    pub failed: usize,
}

/// Time of a message's write minus its due time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SendLateness {
    /// Median.
    pub p50: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// The report of one stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSendReport {
    /// The stream's number, from 0.
    pub stream: u32,
    /// The number of the stream's group, from 0.
    pub group: usize,
    /// Whether its connection was ever established.
    pub connected: bool,
    /// Messages that the kernel accepted completely.
    pub messages: u64,
    /// Bytes that the kernel accepted, including the few that end the stream.
    pub bytes: u64,
    /// Messages that waited in the application because the socket buffer was full.
    pub blocked_writes: u64,
    /// Verified responses.
    pub answers: u64,
    /// For a successful flow, microseconds from the start of its connection until the receiver had
    /// read everything and closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_us: Option<f64>,
    /// TCP's counters, read after the connection's end and before the socket's close.
    #[serde(flatten)]
    pub tcp: TcpInfo,
    /// pillion's counters, read at the same time; `None` if it did not bundle the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundling: Option<BundlingStats>,
    /// The stream's error; `None` if the receiver closed after the last message.
    pub error: Option<String>,
}

impl StreamSendReport {
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
        streams: Vec<StreamSendReport>,
        measured: &Measurements,
    ) -> Self {
        let late_us = |share| us(measured.late_ns.value_at_quantile(share));
        let tcp = |field: fn(&TcpInfo) -> Option<u64>| streams.iter().map(|s| field(&s.tcp)).sum();
        let groups = traffic.groups.iter().enumerate().map(|(index, group)| {
            let all: Vec<_> = streams.iter().filter(|s| s.group == index).collect();
            GroupSendReport {
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

/// Buffers and measurements shared by the streams of one thread.
pub(super) struct ThreadState {
    /// Buffer for bytes to write.
    pub(super) out: Vec<u8>,
    /// Buffer for bytes read.
    pub(super) input: Vec<u8>,
    /// Buffer for the numbers of the streams with socket events.
    pub(super) ready: Vec<usize>,
    pub(super) measured: Measurements,
}

/// Measurements of one thread's streams, in nanoseconds.
pub(super) struct Measurements {
    /// Lateness of messages at their write.
    pub(super) late_ns: Histogram<u64>,
    /// Time from a message's write to the read of its response's last byte.
    pub(super) round_trip_ns: Histogram<u64>,
    pub(super) records: Option<Vec<Record>>,
}

impl ThreadState {
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

    /// Records a response to the message written at `answer.sent_ns`.
    pub(super) fn answer(&mut self, stream: u32, answer: Message) {
        let latency_ns = answer.received_ns.saturating_sub(answer.sent_ns);
        self.round_trip_ns.saturating_record(latency_ns);
        if let Some(records) = &mut self.records {
            records.push(Record {
                measured: LatencyKind::RoundTrip,
                stream,
                sequence: answer.sequence,
                size: answer.size,
                sent_ns: answer.sent_ns,
                latency_us: us(latency_ns),
            });
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        // Both histograms have the same bounds.
        let _ = self.late_ns.add(other.late_ns);
        let _ = self.round_trip_ns.add(other.round_trip_ns);
        if let (Some(records), Some(more)) = (&mut self.records, other.records) {
            records.extend(more);
        }
    }
}
