use std::collections::HashMap;
use std::net::SocketAddr;

use crate::analysis::runs::{Stream, Totals};
use serde::Deserialize;
use serde_json::Value;

use super::StoredRun;
use crate::Error;
use crate::run::STREAMS_FILE;

/// What is read of a group in the file of streams.
#[derive(Deserialize)]
pub(crate) struct GroupStreams {
    pub(crate) name: String,
    /// The senders' address, and the first stream's port; each next stream has the next.
    from: SocketAddr,
    pub(crate) to: SocketAddr,
    first_stream: u32,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
}

/// What the senders report.
#[derive(Deserialize)]
pub(crate) struct Sent {
    pub(crate) send_error_us: SendError,
    pub(crate) streams: Vec<StreamSent>,
}

/// By how much messages were handed over late, in microseconds.
#[derive(Deserialize)]
pub(crate) struct SendError {
    pub(crate) p99: f64,
}

#[derive(Deserialize)]
pub(crate) struct StreamSent {
    pub(crate) stream: u32,
    messages: u64,
    error: Option<String>,
    completion_us: Option<f64>,
    retransmissions: Option<u64>,
    bytes_retrans: Option<u64>,
    bytes_sent: Option<u64>,
    pub(crate) bundling: Option<StreamBundled>,
}

/// What pillion itself says of a stream.
#[derive(Deserialize)]
pub(crate) struct StreamBundled {
    pub(crate) hidden_losses: u64,
}

/// What the receiver reports.
#[derive(Deserialize)]
pub(crate) struct Received {
    pub(crate) streams: Vec<StreamReceived>,
}

#[derive(Deserialize)]
pub(crate) struct StreamReceived {
    stream: Option<u32>,
    messages: u64,
    bytes: u64,
    pub(crate) fault: Option<Value>,
}

impl StoredRun {
    /// What sender and receiver report of each group and each stream.
    pub(crate) fn streams(&self) -> Result<Vec<GroupStreams>, Error> {
        self.json(STREAMS_FILE)
    }
}

impl GroupStreams {
    /// Where a stream comes from, by its number.
    pub(crate) fn sender(&self, stream: u32) -> SocketAddr {
        let behind = u16::try_from(stream.saturating_sub(self.first_stream));
        let port = self.from.port().saturating_add(behind.unwrap_or(u16::MAX));
        SocketAddr::new(self.from.ip(), port)
    }

    /// What each stream experienced, without single messages.
    pub(crate) fn experienced(&self) -> Vec<Stream> {
        let received = self.received.streams.iter();
        let received = received.filter_map(|it| Some((it.stream?, it)));
        let received: HashMap<u32, &StreamReceived> = received.collect();
        let sent = self.sent.streams.iter();
        let streams = sent.map(|it| Stream {
            totals: it.totals(received.get(&it.stream).copied()),
            delivery_ms: Vec::new(),
        });
        streams.collect()
    }
}

impl StreamSent {
    fn totals(&self, received: Option<&StreamReceived>) -> Totals {
        let told = [self.retransmissions, self.bytes_retrans, self.bytes_sent];
        let is_told = told.iter().all(Option::is_some);
        let [retransmissions, retransmitted_bytes, sent_bytes] =
            told.map(Option::unwrap_or_default);
        Totals {
            streams: 1,
            failed_streams: u64::from(self.error.is_some()),
            sent_messages: self.messages,
            received_messages: received.map_or(0, |it| it.messages),
            received_bytes: received.map_or(0, |it| it.bytes),
            completed_flows: u64::from(self.completion_us.is_some()),
            completion_ms: self.completion_us.map_or(0.0, |it| it / 1e3),
            untold: u64::from(!is_told),
            retransmissions,
            sent_bytes,
            retransmitted_bytes,
            ..Totals::default()
        }
    }
}
