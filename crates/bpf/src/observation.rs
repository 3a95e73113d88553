//! What is observed of connections, and in which arm they are.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use clap::ValueEnum;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::contract::types::{self, latency_scale};
use crate::quota::Kept;
use crate::{Counters, Direction, Error, Namespace};

/// What is observed of connections, and which of them are bundled while they are: those of the
/// bundled arm, drawn at random at a connection's first packet. For the others all is done as for
/// these (record, limits, tests of thinness), but bundles are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observing {
    /// How much of what is drawn is bundled, of a million.
    pub bundled_ppm: u32,
    /// The key of the draw. With the same one the same is drawn again.
    pub key: [u64; 2],
    /// Which connections share a draw.
    pub draw_by: DrawBy,
    /// Microseconds beyond the least RTT that are not called late: a receiver may take so long to
    /// acknowledge.
    pub grace_us: u32,
    /// Microseconds of ACK latency beyond which a segment stalls.
    pub stall_us: u32,
}

impl Observing {
    pub(crate) fn bundled_of_2_32(&self) -> u64 {
        (u64::from(self.bundled_ppm) << 32).div_ceil(1_000_000)
    }
}

/// Which connections share a draw, and so an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrawBy {
    /// Connections share a draw with those to the same peer: its IPv4 address, or its IPv6 network (/64). Who connects anew is
    /// in the same arm.
    #[default]
    Peer,
    /// Each connection is drawn for itself, by both endpoints. For peers behind one address.
    Connection,
}

impl DrawBy {
    pub(crate) fn raw(self) -> types::draw_by {
        match self {
            Self::Peer => types::draw_by::DRAW_BY_PEER,
            Self::Connection => types::draw_by::DRAW_BY_CONNECTION,
        }
    }
}

/// As it is said on the command line.
impl fmt::Display for DrawBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Connection => "connection",
        })
    }
}

/// On which side of a comparison a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The connection's segments are bundled.
    Bundled,
    /// Bundles are held back.
    Plain,
}

/// What was observed of a connection so far ([`Policy::observing`](crate::Policy::observing)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The socket's cookie, as `ss --extended` shows it; the kernel gives each only once.
    pub cookie: u64,
    /// The endpoint on this host.
    pub local: SocketAddr,
    /// The peer's endpoint.
    pub peer: SocketAddr,
    /// Who opened the connection, if that is known.
    pub direction: Option<Direction>,
    /// The connection's arm.
    pub arm: Arm,
    /// What the arm was drawn for: alike for connections that share a draw.
    pub unit: u64,
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
    /// Sum of what these segments waited beyond the least RTT and the grace, in microseconds.
    pub late_us: u64,
    /// Segments that waited beyond the least RTT and the grace.
    pub late: u32,
    /// Segments whose ACK latency is beyond the threshold of a stall.
    pub stalls: u32,
    /// Times that TCP's retransmission timer ran out.
    pub timeouts: u32,
    /// Packets that TCP retransmitted.
    pub retransmitted: Retransmitted,
    /// Segments that TCP retransmitted, and what bundles would have made of them.
    pub losses: Losses,
    /// Segments that would have had a bundle, in the plain arm.
    pub held_back: u32,
    /// Bytes that would have ridden along, in the plain arm.
    pub held_back_bytes: u64,
    /// Segments of which too many were outstanding to be recorded.
    pub unrecorded: u32,
    /// True if the connection has ended by an error, of which its peer is not the cause by having
    /// closed, while data was on its way or still to be sent.
    pub is_cut: bool,
    /// Segments by their ACK latency.
    pub latencies: LatencyBuckets,
    /// What became of the connection's segments, as of the last ACK.
    pub counters: Counters,
}

/// Packets that TCP retransmitted, by the state in which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retransmitted {
    /// After a time-out.
    pub after_timeout: u32,
    /// By fast retransmit.
    pub fast: u32,
    /// As a tail loss probe.
    pub probes: u32,
}

/// Segments that TCP retransmitted, and what bundles would have made of them; where bundles are not
/// held back, those that they did not repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Segments that TCP retransmitted.
    pub segments: u32,
    /// Of these, those that the receiver reported to have had already.
    pub needless: u32,
    /// Of the segments retransmitted, those that the first bundle with them would have repaired;
    /// without those that were needless.
    pub repairable: u32,
    /// Of the segments retransmitted, those that would have been in no bundle.
    pub unfollowed: u32,
    /// How much sooner bundles would have had them acknowledged, with all that waited behind, in
    /// microseconds.
    pub saved_us: u64,
    /// The same in place of bundles with a copy of each segment beside it, had none been lost.
    pub copies_saved_us: u64,
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

    /// Where a bucket begins, in microseconds; the next one's beginning is where it ends. As
    /// `latency_bucket()` in `bpf/bundler/sampling/latency.h`.
    #[must_use]
    pub fn begin_us(bucket: usize) -> u64 {
        const FIRST_BIT: usize = latency_scale::LATENCY_FIRST_BIT.0 as usize;
        const STEP_BITS: usize = latency_scale::LATENCY_STEP_BITS.0 as usize;
        const STEPS: usize = 1 << STEP_BITS;
        match bucket.checked_sub(1) {
            None => 0,
            Some(place) => {
                ((STEPS + place % STEPS) as u64) << (FIRST_BIT - STEP_BITS + place / STEPS)
            }
        }
    }
}

/// Reads what the programs observed.
#[derive(Debug)]
pub(crate) struct ObservationReader {
    seen: MapHandle,
    connections: Kept,
    /// The connections that were not there the last time. A walk may miss one that goes on; that it
    /// does so twice is not to be expected.
    missed: HashSet<u64>,
}

impl ObservationReader {
    pub(crate) fn new(seen: MapHandle, connections: Kept) -> Self {
        Self {
            seen,
            connections,
            missed: HashSet::new(),
        }
    }

    /// As [`ObservationReader::new`], with nothing observed.
    pub(crate) fn begin_anew(&mut self) {
        self.missed.clear();
    }

    /// What was observed of each connection so far, in these network namespaces.
    pub(crate) fn read(&mut self, namespaces: &[Namespace]) -> Result<Vec<Observation>, Error> {
        // First these: a connection that comes meanwhile is present, and not among them.
        let keys: Vec<_> = self.seen.keys().collect();
        let present = self.connections.read(namespaces)?;
        let present: HashMap<_, _> = present
            .iter()
            .map(|it| (it.cookie, u64::from(it.inode)))
            .collect();
        let missed = std::mem::take(&mut self.missed);
        let mut observations = Vec::with_capacity(keys.len());
        for key in keys {
            let value = self.seen.lookup(&key, MapFlags::ANY).map_err(of_map)?;
            let (Ok(cookie), Some(value)) = (key.as_slice().try_into(), value) else {
                continue;
            };
            let cookie = u64::from_ne_bytes(cookie);
            let inode = present.get(&cookie);
            let has_ended = inode.is_none() && missed.contains(&cookie);
            if has_ended {
                self.seen.delete(&key).map_err(of_map)?;
            } else if inode.is_none() {
                self.missed.insert(cookie);
            }
            let inode = inode.copied().filter(|inode| *inode != 0);
            observations.extend(parse(cookie, inode, has_ended, &value));
        }
        Ok(observations)
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("read what was observed", error)
}

fn of_map(error: libbpf_rs::Error) -> Error {
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
    let direction = match types::opening(raw.opening) {
        types::opening::OPENED_HERE => Some(Direction::Connect),
        types::opening::OPENED_BY_PEER => Some(Direction::Accept),
        _ => None,
    };
    let address = |octets: [u8; 16], port| {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(), port)
    };
    let latencies: [u32; LatencyBuckets::COUNT] = raw.latencies;
    Some(Observation {
        cookie,
        local: address(raw.ends.local, raw.ends.local_port),
        peer: address(raw.ends.peer, raw.ends.peer_port),
        direction,
        arm,
        unit: raw.unit,
        has_ended,
        inode,
        rtt_min_us: Some(raw.rtt_min_us).filter(|rtt| *rtt != 0),
        segments: raw.segments,
        latency_us: raw.latency_us,
        waited_us: raw.waited_us,
        late_us: raw.late_us,
        late: raw.late,
        stalls: raw.stalls,
        timeouts: raw.timeouts,
        retransmitted: Retransmitted {
            after_timeout: raw.retransmitted.after_timeout,
            fast: raw.retransmitted.fast,
            probes: raw.retransmitted.probes,
        },
        losses: Losses {
            segments: raw.losses.segments,
            needless: raw.losses.needless,
            repairable: raw
                .losses
                .repairable
                .saturating_sub(raw.losses.needless_repairable),
            unfollowed: raw.losses.unfollowed,
            saved_us: raw.losses.saved_us,
            copies_saved_us: raw.losses.copies_saved_us,
        },
        held_back: raw.held_back,
        held_back_bytes: raw.held_back_bytes,
        unrecorded: raw.unrecorded,
        is_cut: raw.cut != 0,
        latencies: LatencyBuckets(latencies.to_vec()),
        counters: Counters::from(&raw.counters),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_all_that_half_a_hash_can_be() {
        let bundled = |bundled_ppm| {
            let observing = Observing {
                bundled_ppm,
                key: [0; 2],
                draw_by: DrawBy::default(),
                grace_us: 0,
                stall_us: 0,
            };
            observing.bundled_of_2_32()
        };
        let bundled = [0, 500_000, 1_000_000].map(bundled);
        assert_eq!(bundled, [0, 1 << 31, 1 << 32]);
    }

    #[test]
    fn buckets_begin_where_the_last_ones_end() {
        let begins = [0, 1, 2, 8, 9, 10, 17].map(LatencyBuckets::begin_us);
        assert_eq!(begins, [0, 128, 144, 240, 256, 288, 512]);
        let last = LatencyBuckets::begin_us(LatencyBuckets::COUNT);
        assert_eq!(last, 1 << 28);
    }
}
