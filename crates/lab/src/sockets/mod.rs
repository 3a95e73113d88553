//! Samples of TCP sockets over time, from the kernel's sock_diag(7).
//!
//! [`Sockets`] requests all connections of a network namespace in one query, and does not involve
//! their applications.

mod diag;

use std::io;
use std::net::SocketAddr;

use pillion_bpf::host::TcpInfo;
use serde::Serialize;

pub use diag::Sockets;

/// Why sockets could not be sampled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel did not answer the query.
    #[error("query the kernel's TCP sockets: {0}; it needs CONFIG_INET_DIAG")]
    Query(io::Error),
}

/// A sample of a TCP connection. A field that the running kernel does not report is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Time of the sample, `CLOCK_MONOTONIC` in ns; equal for all samples of one query.
    pub at_ns: u64,
    /// The connection's endpoint on this host.
    pub local: SocketAddr,
    /// The peer's endpoint.
    pub peer: SocketAddr,
    /// The connection's state, from SYN-SENT to CLOSING.
    pub state: State,
    /// The state of congestion control.
    pub recovery: Recovery,
    /// Congestion window in packets.
    pub cwnd_packets: Option<u32>,
    /// Slow-start threshold in packets; `None` also if it is still infinite.
    pub ssthresh_packets: Option<u32>,
    /// Packets in flight: sent and unacknowledged, minus those assumed received or lost, plus
    /// retransmissions.
    pub in_flight_packets: Option<u32>,
    /// Packets sent and unacknowledged (`tcpi_unacked`).
    pub unacked_packets: Option<u32>,
    /// Unacknowledged packets that SACK reports.
    pub sacked_packets: Option<u32>,
    /// Unacknowledged packets that are assumed lost.
    pub lost_packets: Option<u32>,
    /// Unacknowledged packets that were retransmitted.
    pub retrans_packets: Option<u32>,
    /// Bytes written by the application but not sent yet (Linux 4.6).
    pub not_sent_bytes: Option<u32>,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u32>,
    /// Mean deviation of the round-trip time in microseconds.
    pub rttvar_us: Option<u32>,
    /// Smallest recent round-trip time in microseconds; `None` also without any sample (Linux 4.6).
    pub min_rtt_us: Option<u32>,
    /// Retransmission timeout in microseconds, with backoff.
    pub rto_us: Option<u32>,
    /// Doublings of the retransmission timeout.
    pub backoff: Option<u8>,
    /// Maximum segment size in bytes of payload.
    pub mss_bytes: Option<u32>,
    /// Segments retransmitted so far.
    pub total_retrans: Option<u32>,
    /// Bytes of payload acknowledged so far (Linux 4.1; the SYN counts as one).
    pub bytes_acked: Option<u64>,
    /// Bytes of payload sent so far, retransmissions included (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Bytes of payload received so far (Linux 4.1).
    pub bytes_received: Option<u64>,
    /// Packets delivered so far, as TCP counts them (Linux 4.18).
    pub delivered_packets: Option<u32>,
    /// Latest delivery rate in bytes per second (Linux 4.9).
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// DSACKs received so far (Linux 4.19).
    pub dsacks: Option<u32>,
    /// Number of times that reordering was detected (Linux 4.19).
    pub reorderings: Option<u32>,
}

/// The state of a connection (RFC 9293, section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum State {
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Closed = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

/// The state of congestion control (`enum tcp_ca_state` in `linux/tcp.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// No sign of loss or reordering.
    Open,
    /// Duplicate or selective acknowledgements arrived.
    Disorder,
    /// The window is reduced for another reason than loss.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// A retransmission timeout expired, and the assumed losses are being repaired.
    Loss,
}

impl State {
    const ALL: [Self; 11] = [
        Self::Established,
        Self::SynSent,
        Self::SynReceived,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Closed,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
    ];

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }

    /// Returns the state's name in CSV, JSON and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::FinWait1 => "fin-wait1",
            Self::FinWait2 => "fin-wait2",
            Self::TimeWait => "time-wait",
            Self::Closed => "closed",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::Listen => "listen",
            Self::Closing => "closing",
        }
    }
}

impl Recovery {
    fn of(number: u8) -> Self {
        match number {
            1 => Self::Disorder,
            2 => Self::Cwr,
            3 => Self::Recovery,
            4 => Self::Loss,
            _ => Self::Open,
        }
    }

    /// Returns the recovery state's name in CSV, JSON and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// A connection's state and endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
}

/// Slow-start threshold that the kernel reports before the first loss (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl Sample {
    pub(crate) fn new(at_ns: u64, connection: Connection, info: TcpInfo) -> Self {
        Self {
            at_ns,
            local: connection.local,
            peer: connection.peer,
            state: connection.state,
            recovery: Recovery::of(info.ca_state().unwrap_or(0)),
            cwnd_packets: info.snd_cwnd(),
            ssthresh_packets: info
                .snd_ssthresh()
                .filter(|packets| *packets < NO_THRESHOLD),
            in_flight_packets: in_flight(info),
            unacked_packets: info.unacked(),
            sacked_packets: info.sacked(),
            lost_packets: info.lost(),
            retrans_packets: info.retrans(),
            not_sent_bytes: info.notsent_bytes(),
            rtt_us: info.rtt_us(),
            rttvar_us: info.rttvar_us(),
            min_rtt_us: info.min_rtt_us(),
            rto_us: info.rto_us(),
            backoff: info.backoff(),
            mss_bytes: info.snd_mss(),
            total_retrans: info.total_retrans(),
            bytes_acked: info.bytes_acked(),
            bytes_sent: info.bytes_sent(),
            bytes_received: info.bytes_received(),
            delivered_packets: info.delivered(),
            delivery_rate_bytes_per_s: info.delivery_rate(),
            dsacks: info.dsack_dups(),
            reorderings: info.reord_seen(),
        }
    }
}

fn in_flight(info: TcpInfo) -> Option<u32> {
    let left = info.sacked()?.saturating_add(info.lost()?);
    let sent = info.unacked()?.saturating_sub(left);
    Some(sent.saturating_add(info.retrans()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_kernel_fields_are_none() {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        let connection = Connection {
            local: end,
            peer: end,
            state: State::Established,
        };
        let mut info = [0; 104];
        for (field, value) in [(24, 10), (28, 3), (32, 2), (36, 1), (76, NO_THRESHOLD)] {
            info[field..field + 4].copy_from_slice(&u32::to_ne_bytes(value));
        }
        let sample = Sample::new(7, connection, TcpInfo::new(&info));
        assert_eq!(sample.in_flight_packets, Some(6));
        assert_eq!(
            (sample.ssthresh_packets, sample.total_retrans),
            (None, Some(0))
        );
        assert_eq!((sample.bytes_acked, sample.not_sent_bytes), (None, None));
    }
}
