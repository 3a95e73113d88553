use pillion_stats::measure::Distribution;
use serde::Serialize;

use super::above::Above;
use super::batch::{End, Extent, Transit};
use super::undated::Undated;
use crate::Readable;
use crate::pair::{Clock, Hull, LinearDelay, PathDirection};

/// Times between two traces, whose clocks need not agree.
///
/// By two clocks they wait until the clocks are known: of each direction, a sample of 16,384 packets
/// and of as many byte ranges, where there are more.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    /// Delay variation of each packet with payload that arrived (RFC 5481, PDV): its delay minus
    /// the smallest one of its connection, the handshake's included, by the drift of the lower hull
    /// of all connections' delays. It is the queueing delay where the path does not change (thesis,
    /// section 3.4.3) and was idle once: connections may take different paths, so that the smallest
    /// delay of another one tells nothing of a queue.
    pub variation: Distribution,
    /// One-way delay of each packet with payload that arrived.
    pub one_way: Distribution,
    /// Delivery latency at the transport layer: from the first time that a byte range was sent
    /// to its first arrival.
    pub transport: Distribution,
    /// Delivery latency at the application layer: until all bytes before it were there as well,
    /// so that the application could read it.
    pub application: Distribution,
    /// What is in none of them.
    pub untold: Untold,
    waiting: Waiting,
}

/// Delays that are not known, and why: they are in no distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Untold {
    /// Packets with payload that arrived earlier than they left, by clocks that were said to be
    /// one.
    pub negative_delays: u64,
    /// Byte ranges that arrived earlier than they were sent, or by two clocks of which the trace at the sender misses when they were
    /// first sent.
    pub negative_latencies: u64,
    /// Packets with payload of which nothing tells how the clocks relate.
    pub packets_without_clock: u64,
    /// Bytes that arrived, and could be read at a time that is not known: bytes before them arrived
    /// unseen.
    pub bytes_read_unseen: u64,
    /// Bytes that could not be read to the end of the traces, whether or not they arrived.
    pub bytes_never_read: u64,
    /// Bytes that were sent, and not acknowledged to the end of the trace.
    pub bytes_never_acked: u64,
}

/// What waits until all is known of the clocks.
#[derive(Debug, Clone)]
enum Waiting {
    /// By two clocks.
    Two {
        packets: Undated,
        transport: Undated,
        application: Undated,
    },
    /// By one, of which the least delay is not known yet.
    One(Above),
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Two {
            packets: Undated::default(),
            transport: Undated::default(),
            application: Undated::default(),
        }
    }
}

impl Delay {
    pub(super) fn new(one_clock: bool) -> Self {
        Self {
            waiting: if one_clock {
                Waiting::One(Above::default())
            } else {
                Waiting::default()
            },
            ..Self::default()
        }
    }

    /// Enters a packet with payload.
    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        let End::Delivered { raw_delay_ns } = fate.outcome else {
            return;
        };
        match &mut self.waiting {
            Waiting::Two { packets, .. } => packets.push(fate.sent_ns, raw_delay_ns),
            Waiting::One(variation) => {
                variation.add(raw_delay_ns);
                if raw_delay_ns < 0 {
                    self.untold.negative_delays += 1;
                } else {
                    self.one_way.record(raw_delay_ns);
                }
            }
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        if range.ack_latency_ns.is_none() && range.first_sent_ns.is_some() {
            self.untold.bytes_never_acked += range.len;
        }
        let Some(delivery) = range.delivery else {
            if range.has_receiver && !range.arrived_unseen {
                self.untold.bytes_never_read += range.len;
            }
            return;
        };
        match delivery.readable {
            Readable::At(_) => {}
            Readable::Unknown => self.untold.bytes_read_unseen += range.len,
            Readable::Never => self.untold.bytes_never_read += range.len,
        }
        let Some(sent_ns) = range.first_sent_ns else {
            return;
        };
        let raw_ns = delivery.at_ns.saturating_sub(sent_ns);
        let readable_ns = delivery.in_order_ns();
        let readable_ns = readable_ns.map(|at_ns| at_ns.saturating_sub(sent_ns));
        match &mut self.waiting {
            Waiting::Two {
                transport,
                application,
                ..
            } => {
                transport.push(sent_ns, raw_ns);
                if let Some(readable_ns) = readable_ns {
                    application.push(sent_ns, readable_ns);
                }
            }
            Waiting::One(_) if raw_ns < 0 => self.untold.negative_latencies += 1,
            Waiting::One(_) => {
                self.transport.record(raw_ns);
                if let Some(readable_ns) = readable_ns {
                    self.application.record(readable_ns);
                }
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.variation.add(&other.variation);
        self.one_way.add(&other.one_way);
        self.transport.add(&other.transport);
        self.application.add(&other.application);
        self.untold.add(&other.untold);
    }

    /// Takes the clocks out of what waited. `lowest`: of the raw delays of all packets of this
    /// direction, those without payload as well.
    pub(super) fn compare(&mut self, way: PathDirection, clock: &Clock, lowest: &Hull) {
        let least = clock.least(way);
        let lowest = |slope| LinearDelay::below(lowest, slope);
        match std::mem::take(&mut self.waiting) {
            Waiting::One(variation) => {
                if let Some(least) = lowest(0.0) {
                    self.variation = variation.above(least.delay_ns as i64);
                }
            }
            Waiting::Two {
                packets,
                transport,
                application,
            } => {
                let Some(zero) = clock.zero(way) else {
                    self.untold.packets_without_clock += packets.len();
                    return;
                };
                let own = least.and_then(|line| lowest(line.slope));
                self.variation = own.map_or_else(Distribution::default, |line| packets.above(line));
                self.one_way = packets.above(zero);
                let below;
                (self.transport, below) = transport.not_below(zero);
                (self.application, _) = application.not_below(zero);
                self.untold.negative_latencies += below;
            }
        }
    }

    pub(super) fn settle(&mut self) {
        for distribution in [
            &mut self.variation,
            &mut self.one_way,
            &mut self.transport,
            &mut self.application,
        ] {
            distribution.settle();
        }
    }
}

impl Untold {
    fn add(&mut self, other: &Self) {
        self.negative_delays += other.negative_delays;
        self.negative_latencies += other.negative_latencies;
        self.packets_without_clock += other.packets_without_clock;
        self.bytes_read_unseen += other.bytes_read_unseen;
        self.bytes_never_read += other.bytes_never_read;
        self.bytes_never_acked += other.bytes_never_acked;
    }
}
