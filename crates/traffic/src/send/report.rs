use hdrhistogram::Histogram;
use serde::Serialize;

use crate::clock::us;
use crate::tcp_info::TcpInfo;

/// What was sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SendReport {
    /// Messages that the kernel took whole.
    pub messages: u64,
    /// Bytes that the kernel took, prefaces included.
    pub bytes: u64,
    /// Messages that met a full socket buffer and had to wait in the application.
    pub blocked_writes: u64,
    /// How late messages were handed over.
    pub send_error_us: SendLateness,
    /// Segments sent again, all streams together; `None` when the kernel does not say.
    pub retransmissions: Option<u64>,
    /// Payload bytes sent again, all streams together; `None` when the kernel does not say.
    pub bytes_retrans: Option<u64>,
    /// Segments sent, all streams together; `None` when the kernel does not say.
    pub segs_out: Option<u64>,
    /// Streams that did not end with the receiver's close after all was sent.
    pub failed: usize,
    /// Each stream, in order.
    pub streams: Vec<StreamSent>,
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
    /// Messages that the kernel took whole.
    pub messages: u64,
    /// Bytes that the kernel took, the preface included.
    pub bytes: u64,
    /// Messages that met a full socket buffer and had to wait in the application.
    pub blocked_writes: u64,
    /// What TCP counted, read when the connection had ended and before the socket was closed.
    #[serde(flatten)]
    pub tcp: TcpInfo,
    /// Why the stream failed; `None` when the receiver closed after all was sent.
    pub error: Option<String>,
}

impl StreamSent {
    pub(super) fn new(stream: u32) -> Self {
        Self {
            stream,
            messages: 0,
            bytes: 0,
            blocked_writes: 0,
            tcp: TcpInfo::default(),
            error: None,
        }
    }
}

impl SendReport {
    pub(super) fn new(streams: Vec<StreamSent>, late_ns: &Histogram<u64>) -> Self {
        let late_us = |share| us(late_ns.value_at_quantile(share));
        let tcp = |field: fn(&TcpInfo) -> Option<u64>| streams.iter().map(|s| field(&s.tcp)).sum();
        Self {
            messages: streams.iter().map(|s| s.messages).sum(),
            bytes: streams.iter().map(|s| s.bytes).sum(),
            blocked_writes: streams.iter().map(|s| s.blocked_writes).sum(),
            send_error_us: SendLateness {
                p50: late_us(0.5),
                p99: late_us(0.99),
                max: late_us(1.0),
            },
            retransmissions: tcp(|tcp| tcp.retransmissions.map(u64::from)),
            bytes_retrans: tcp(|tcp| tcp.bytes_retrans),
            segs_out: tcp(|tcp| tcp.segs_out.map(u64::from)),
            failed: streams.iter().filter(|s| s.error.is_some()).count(),
            streams,
        }
    }
}
