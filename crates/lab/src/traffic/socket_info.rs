//! Counters of a connection from the kernel and from pillion.

use std::os::fd::AsFd;

use nix::errno::Errno;
use pillion_bpf::host::pillion::{self, BY_APPLICATION, BY_RULE, Stats};
use serde::Serialize;

/// The kernel's counters of a connection (`TCP_INFO`). A field that the running kernel does not
/// report is `None`.
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

/// pillion's counters of a bundled connection (`struct pillion_stats` of `include/pillion.h`,
/// docs/guides/socket-api.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BundlingStats {
    /// Segments with data sent for the first time.
    pub segments: u64,
    /// Segments that contained a bundle.
    pub bundled: u64,
    /// Payload bytes sent for the first time.
    pub new_bytes: u64,
    /// Payload bytes sent redundantly in bundles.
    pub redundant_bytes: u64,
    /// Lost segments that bundles repaired.
    pub hidden_losses: u64,
    /// Payload bytes of these segments.
    pub repaired_bytes: u64,
    /// Reductions of the congestion window after these losses.
    pub reactions: u64,
}

impl BundlingStats {
    /// Reads pillion's counters of a socket; `None` if pillion is not running or does not bundle
    /// it.
    pub(crate) fn read(socket: &impl AsFd) -> Option<Self> {
        Self::of(pillion::stats(socket).ok()?)
    }

    fn of(stats: Stats) -> Option<Self> {
        matches!(stats.state, BY_RULE | BY_APPLICATION).then_some(Self {
            segments: stats.segments,
            bundled: stats.bundled,
            new_bytes: stats.new_bytes,
            redundant_bytes: stats.redundant_bytes,
            hidden_losses: stats.hidden_losses,
            repaired_bytes: stats.repaired_bytes,
            reactions: stats.reactions,
        })
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::host::pillion::{OFF, REFUSED};

    use super::*;

    #[test]
    fn only_bundled_connection_has_stats() {
        let counts = |state| {
            BundlingStats::of(Stats {
                hidden_losses: 5,
                state,
                ..Stats::default()
            })
        };
        for state in [OFF, REFUSED] {
            assert_eq!(counts(state), None);
        }
        for state in [BY_RULE, BY_APPLICATION] {
            assert_eq!(counts(state).map(|it| it.hidden_losses), Some(5));
        }
    }

    #[test]
    fn socket_has_no_stats_without_pillion() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(BundlingStats::read(&listener), None);
    }
}
