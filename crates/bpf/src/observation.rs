//! Observations of connections and their arms.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use clap::ValueEnum;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::contract::types::{self, latency_scale, rto_min_scale};
use crate::quota::SocketEntries;
use crate::{Arm, Counters, Direction, Error, Namespace};

/// Configures observation, and the share of bundled connections. Connections are assigned to the
/// bundled arm at random, at their first packet. The others are processed equally (record, limits,
/// thin-stream tests), but their bundles are suppressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observing {
    /// Share of assignments to the bundled arm, in ppm; `None`: observe only connections of rules with
    /// a [`Holdback`](crate::Holdback), assigned by its share.
    pub bundled_ppm: Option<u32>,
    /// The key of the assignment. The same key gives the same assignment.
    pub key: [u64; 2],
    /// Which connections share a draw.
    pub assign_by: AssignBy,
    /// Microseconds above the minimum RTT that do not count as late: time that a receiver may take
    /// to acknowledge.
    pub grace_us: u32,
    /// Microseconds of ACK latency beyond which a segment stalls.
    pub stall_us: u32,
}

impl Observing {
    /// Observes each connection of rules with a holdback. Segments are late as in a trial by default.
    #[must_use]
    pub fn by_holdback(key: [u64; 2]) -> Self {
        Self {
            bundled_ppm: None,
            key,
            assign_by: AssignBy::Connection,
            grace_us: 50_000,
            stall_us: 300_000,
        }
    }

    pub(crate) fn bundled_of_2_32(&self) -> u64 {
        (u64::from(self.bundled_ppm.unwrap_or(0)) << 32).div_ceil(1_000_000)
    }
}

/// Which connections share a draw, and so an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AssignBy {
    /// Connections to the same peer share an assignment: its IPv4 address, or its IPv6 network
    /// (/64). A reconnecting peer stays in its arm.
    #[default]
    Peer,
    /// Each connection is assigned separately, by both endpoints. For peers that share an address.
    Connection,
}

impl AssignBy {
    pub(crate) fn raw(self) -> types::assign_by {
        match self {
            Self::Peer => types::assign_by::ASSIGN_BY_PEER,
            Self::Connection => types::assign_by::ASSIGN_BY_CONNECTION,
        }
    }
}

/// Formats the value as on the command line.
impl fmt::Display for AssignBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Connection => "connection",
        })
    }
}

/// The observation of a connection up to now ([`Policy::observing`](crate::Policy::observing)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The socket's cookie, as `ss --extended` shows it; the kernel gives each only once.
    pub cookie: u64,
    /// The endpoint on this host.
    pub local: SocketAddr,
    /// The peer's endpoint.
    pub peer: SocketAddr,
    /// Who opened the connection, if known.
    pub direction: Option<Direction>,
    /// The connection's arm.
    pub arm: Arm,
    /// The hash of the assignment; equal for connections that share it.
    pub unit: u64,
    /// Number of the rule that decided last; 0: none.
    pub rule: u32,
    /// True once the connection has ended: nothing will be added.
    pub has_ended: bool,
    /// The inode by which processes have the socket open, if one has.
    pub inode: Option<u64>,
    /// The least RTT so far, in microseconds.
    pub rtt_min_us: Option<u32>,
    /// New segments that were acknowledged and whose ACK latency is known.
    pub segments: u64,
    /// Sum of these segments' ACK latencies, in microseconds.
    pub latency_us: u64,
    /// Sum of what these segments waited beyond the least RTT, in microseconds.
    pub waited_us: u64,
    /// As `waited_us`, in microseconds times bytes.
    pub waited_byte_us: u64,
    /// Time that bytes waited in the socket before they were sent, in microseconds times bytes.
    pub unsent_byte_us: u64,
    /// Part of `unsent_byte_us` that Nagle's algorithm caused.
    pub nagle_byte_us: u64,
    /// Part of `unsent_byte_us` while losses had reduced the congestion window.
    pub reduced_byte_us: u64,
    /// Sum of what these segments waited beyond the least RTT and the grace, in microseconds.
    pub late_us: u64,
    /// Segments that waited beyond the least RTT and the grace.
    pub late: u32,
    /// Segments whose ACK latency is beyond the threshold of a stall.
    pub stalls: u32,
    /// Times that TCP's retransmission timer ran out.
    pub timeouts: u32,
    /// Expirations of that timer without back-off, and tail loss probes of a single packet.
    pub rto_expirations: u32,
    /// Time until these expirations, in milliseconds.
    pub rto_ms: u32,
    /// The effect of the minimum RTOs in [`RtoMinEffect::MIN_MS`].
    pub rto_mins: [RtoMinEffect; RtoMinEffect::MIN_MS.len()],
    /// Packets that TCP retransmitted.
    pub retransmitted: RetransmitCounts,
    /// Segments that TCP retransmitted, and what bundles would have made of them.
    pub losses: Losses,
    /// Segments that would have had a bundle, in the plain arm.
    pub suppressed: u32,
    /// Copies that would have been sent, in the plain arm.
    pub suppressed_copies: u32,
    /// Bytes of these bundles and copies, in the plain arm.
    pub suppressed_bytes: u64,
    /// Segments beyond the capacity of the record.
    pub unrecorded: u32,
    /// True if the connection ended by an error with unacknowledged or unsent data, and the peer
    /// had not closed it.
    pub is_aborted: bool,
    /// Segments by their ACK latency.
    pub latencies: LatencyBuckets,
    /// The connection's outcomes and counters, as of the last ACK.
    pub counters: Counters,
}

/// The effect that a smaller minimum RTO would have had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RtoMinEffect {
    /// Time by which the timer would have expired earlier, in milliseconds.
    pub saved_ms: u32,
    /// Expirations before an ACK that came without a retransmission.
    pub needless: u32,
}

impl RtoMinEffect {
    /// The minimum RTOs, in milliseconds.
    pub const MIN_MS: [u64; rto_min_scale::RTO_MINS.0 as usize] = {
        const FIRST: u64 = rto_min_scale::RTO_MIN_FIRST_MS.0 as u64;
        [FIRST, 2 * FIRST, 4 * FIRST]
    };
}

/// Packets that TCP retransmitted, by the state in which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetransmitCounts {
    /// After a time-out.
    pub after_timeout: u32,
    /// By fast retransmit.
    pub fast: u32,
    /// By tail loss probes.
    pub probes: u32,
}

/// Segments that TCP retransmitted, and the effect that bundles would have had. In the bundled arm,
/// only losses that bundles did not repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Segments that TCP retransmitted.
    pub segments: u32,
    /// Retransmissions that the receiver reported as duplicates.
    pub spurious: u32,
    /// Retransmitted segments that a bundle or copy would have repaired, without spurious
    /// retransmissions.
    pub repairable: u32,
    /// Retransmitted segments that would have had neither bundle nor copy.
    pub uncovered: u32,
    /// Time by which bundles and copies would have advanced the delivery of bytes, including delayed
    /// later ones, in microseconds times bytes.
    pub time_saved_byte_us: u64,
    /// As `time_saved_byte_us`, with a copy of each segment instead of bundles, if no copy is lost.
    pub copies_time_saved_byte_us: u64,
}

/// Segments by the logarithm of their ACK latency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyBuckets(Vec<u32>);

impl LatencyBuckets {
    /// How many buckets there are.
    pub const COUNT: usize = latency_scale::LATENCY_BUCKETS.0 as usize;

    /// The segments in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    /// The start of a bucket in microseconds, which is the end of the previous one. As
    /// `latency_bucket()` in `bpf/bundler/sampling/latency.h`.
    #[must_use]
    pub fn start_us(bucket: usize) -> u64 {
        const FIRST_BIT: usize = latency_scale::LATENCY_FIRST_BIT.0 as usize;
        const STEP_BITS: usize = latency_scale::LATENCY_STEP_BITS.0 as usize;
        const STEPS: usize = 1 << STEP_BITS;
        match bucket.checked_sub(1) {
            None => 0,
            Some(step) => ((STEPS + step % STEPS) as u64) << (FIRST_BIT - STEP_BITS + step / STEPS),
        }
    }
}

/// Reads the programs' observations.
#[derive(Debug)]
pub(crate) struct ObservationReader {
    observations: MapHandle,
    connections: SocketEntries,
    /// The connections missing in the last read. An iteration may miss a live connection, but
    /// hardly twice.
    missed: HashSet<u64>,
}

impl ObservationReader {
    pub(crate) fn new(observations: MapHandle, connections: SocketEntries) -> Self {
        Self {
            observations,
            connections,
            missed: HashSet::new(),
        }
    }

    /// Resets it to the state after [`ObservationReader::new`].
    pub(crate) fn reset(&mut self) {
        self.missed.clear();
    }

    /// Reads the observation of each connection in these network namespaces.
    pub(crate) fn read(
        &mut self,
        namespaces: &[Namespace],
        mut each: impl FnMut(Observation),
    ) -> Result<(), Error> {
        // First these: a connection that comes meanwhile is present, and not among them.
        let keys: Vec<_> = self.observations.keys().collect();
        let present = self.connections.read(namespaces)?;
        let present: HashMap<_, _> = present
            .iter()
            .map(|it| (it.cookie, u64::from(it.inode)))
            .collect();
        let missed = std::mem::take(&mut self.missed);
        for key in keys {
            let value = self
                .observations
                .lookup(&key, MapFlags::ANY)
                .map_err(map_error)?;
            let (Ok(cookie), Some(value)) = (key.as_slice().try_into(), value) else {
                continue;
            };
            let cookie = u64::from_ne_bytes(cookie);
            let inode = present.get(&cookie);
            let has_ended = inode.is_none() && missed.contains(&cookie);
            if has_ended {
                self.observations.delete(&key).map_err(map_error)?;
            } else if inode.is_none() {
                self.missed.insert(cookie);
            }
            let inode = inode.copied().filter(|inode| *inode != 0);
            parse(cookie, inode, has_ended, &value)
                .into_iter()
                .for_each(&mut each);
        }
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("read the observations", error)
}

fn map_error(error: libbpf_rs::Error) -> Error {
    failed(io::Error::other(error.to_string()))
}

fn parse(cookie: u64, inode: Option<u64>, has_ended: bool, value: &[u8]) -> Option<Observation> {
    if value.len() < size_of::<types::observation>() {
        return None;
    }
    // SAFETY: plain integers, of which any bits are valid, and enough of them.
    let raw = unsafe { value.as_ptr().cast::<types::observation>().read_unaligned() };
    let arm = match raw.arm {
        types::arm::ARM_BUNDLED => Arm::Bundled,
        types::arm::ARM_PLAIN => Arm::Plain,
        // Its first packet is leaving at this moment.
        _ => return None,
    };
    let direction = match types::open_kind(raw.open_kind.into()) {
        types::open_kind::ACTIVE_OPEN => Some(Direction::Connect),
        types::open_kind::PASSIVE_OPEN => Some(Direction::Accept),
        _ => None,
    };
    let address = |octets: [u8; 16], port| {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(), port)
    };
    let latencies: [u32; LatencyBuckets::COUNT] = raw.latencies;
    Some(Observation {
        cookie,
        local: address(raw.endpoints.local, raw.endpoints.local_port),
        peer: address(raw.endpoints.peer, raw.endpoints.peer_port),
        direction,
        arm,
        unit: raw.unit,
        rule: raw.rule.into(),
        has_ended,
        inode,
        rtt_min_us: Some(raw.rtt_min_us).filter(|rtt| *rtt != 0),
        segments: raw.segments,
        latency_us: raw.latency_us,
        waited_us: raw.waited_us,
        waited_byte_us: raw.waited_byte_us,
        unsent_byte_us: raw.unsent_byte_us,
        nagle_byte_us: raw.nagle_byte_us,
        reduced_byte_us: raw.reduced_byte_us,
        late_us: raw.late_us,
        late: raw.late,
        stalls: raw.stalls,
        timeouts: raw.timeouts,
        rto_expirations: raw.rto_expirations,
        rto_ms: raw.rto_ms,
        rto_mins: raw.rto_mins.map(|it| RtoMinEffect {
            saved_ms: it.saved_ms,
            needless: it.needless,
        }),
        retransmitted: RetransmitCounts {
            after_timeout: raw.retransmitted.after_timeout,
            fast: raw.retransmitted.fast,
            probes: raw.retransmitted.probes,
        },
        losses: Losses {
            segments: raw.losses.segments,
            spurious: raw.losses.spurious,
            repairable: raw
                .losses
                .repairable
                .saturating_sub(raw.losses.spurious_repairable),
            uncovered: raw.losses.uncovered,
            time_saved_byte_us: raw.losses.time_saved_byte_us,
            copies_time_saved_byte_us: raw.losses.copies_time_saved_byte_us,
        },
        suppressed: raw.suppressed,
        suppressed_copies: raw.suppressed_copies,
        suppressed_bytes: raw.suppressed_bytes,
        unrecorded: raw.unrecorded,
        is_aborted: raw.aborted != 0,
        latencies: LatencyBuckets(latencies.to_vec()),
        counters: Counters::from(&raw.counters),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_share_scales_to_32_bit_hash() {
        let bundled = |bundled_ppm| {
            let observing = Observing {
                bundled_ppm: Some(bundled_ppm),
                key: [0; 2],
                assign_by: AssignBy::default(),
                grace_us: 0,
                stall_us: 0,
            };
            observing.bundled_of_2_32()
        };
        let bundled = [0, 500_000, 1_000_000].map(bundled);
        assert_eq!(bundled, [0, 1 << 31, 1 << 32]);
    }

    #[test]
    fn latency_buckets_are_contiguous() {
        let begins = [0, 1, 2, 8, 9, 10, 17].map(LatencyBuckets::start_us);
        assert_eq!(begins, [0, 128, 144, 240, 256, 288, 512]);
        let last = LatencyBuckets::start_us(LatencyBuckets::COUNT);
        assert_eq!(last, 1 << 28);
    }
}
