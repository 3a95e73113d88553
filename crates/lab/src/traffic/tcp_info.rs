use std::os::fd::AsFd;

use nix::errno::Errno;
use serde::Serialize;

/// What the kernel counted for one connection (`TCP_INFO`). A field that the running kernel does
/// not report is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    /// Segments retransmitted, of all kinds (`tcpi_total_retrans`).
    pub retransmissions: Option<u32>,
    /// Payload bytes retransmitted (Linux 4.19).
    pub bytes_retrans: Option<u64>,
    /// Segments sent, with and without payload (Linux 4.2).
    pub segs_out: Option<u32>,
    /// Payload bytes sent, retransmissions included (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u32>,
    /// Smallest recent round-trip time in microseconds; `None` also without any sample (Linux 4.6).
    pub min_rtt_us: Option<u32>,
    /// Congestion window in segments.
    pub cwnd: Option<u32>,
}

impl TcpInfo {
    /// Reads the counters of a TCP socket.
    pub(crate) fn read(socket: impl AsFd) -> Result<Self, Errno> {
        pillion_bpf::host::TcpInfo::read(socket, |info| Self {
            retransmissions: info.total_retrans(),
            bytes_retrans: info.bytes_retrans(),
            segs_out: info.segs_out(),
            bytes_sent: info.bytes_sent(),
            rtt_us: info.rtt_us(),
            min_rtt_us: info.min_rtt_us(),
            cwnd: info.snd_cwnd(),
        })
    }
}
