//! Two traces of the same connections, one taken at the sender and one at the receiver.
//!
//! Packets are matched by all header fields that the network leaves unchanged; the k-th of equal
//! packets matches the k-th. This shows which packets were lost, their transit times, which copy of
//! a byte arrived first, and what it waited for. Copies are indistinguishable without
//! IP identification (IPv6 or identification 0) and timestamps. If several equal packets were in
//! transit, the number of losses is right, but which one was lost is a guess, and no delay counts.

mod clock;
mod engine;
mod hosts;
mod pair_state;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{mem, thread};

use crate::connection::DoubledLinks;
use crate::event::Side;
use crate::observer::{Observer, Period, PeriodFilter};
use crate::packet::{Endpoint, Packet, fingerprint};
use crate::prefetch;
use engine::Engine;
use hosts::{LEAD_PACKETS, LeadPackets, Nat};
use pair_state::PairState;

pub use clock::{Clock, LinearDelay};

/// Options for combining two traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairOptions {
    /// A packet that has not arrived after this time (nanoseconds) is lost, unless all of its bytes
    /// are still missing: an ACK may report them later. Packets of twice this time stay in memory.
    pub max_transit_ns: i64,
    /// Addresses changed on the path: in the receiver's trace, in the sender's. Ports stay. Other
    /// translations are found if the packets are otherwise equal.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// The analysed period of both traces, by the clock of the sender's.
    pub period: Period,
    /// One clock took both traces, so raw delays are delays. Otherwise the relation of the clocks
    /// is estimated from the traces.
    pub same_clock: bool,
}

/// Results about two traces as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct PairSummary {
    /// Relation of their clocks.
    pub clock: Clock,
    /// Connections whose addresses or ports changed on the path.
    pub translated_connections: usize,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            max_transit_ns: 10_000_000_000,
            addresses: Vec::new(),
            period: Period::default(),
            same_clock: false,
        }
    }
}

/// Analyses the packets of two traces, each in the order of its file.
///
/// A thread per trace reads it. Packets are merged by time, as far as the clocks are comparable.
/// Memory is bounded by the data in transit.
pub fn analyse<O: Observer>(
    sender: impl Iterator<Item = Packet> + Send,
    receiver: impl Iterator<Item = Packet> + Send,
    options: &PairOptions,
    observer: O,
) -> (O, PairSummary) {
    thread::scope(|scope| {
        let (to_sender, from_sender) = PacketSource::new();
        let (to_receiver, from_receiver) = PacketSource::new();
        scope.spawn(move || read(sender, &to_sender));
        scope.spawn(move || read(receiver, &to_receiver));
        merge(from_sender, from_receiver, options, observer)
    })
}

/// Distances in packets at which a connection is prefetched, then its state, then its links.
const PREFETCH_CONNECTION: usize = 5;
const PREFETCH_STATE: usize = 2;
const PREFETCH_LINKS: usize = 1;

fn merge<O: Observer>(
    mut sender: PacketSource,
    mut receiver: PacketSource,
    options: &PairOptions,
    observer: O,
) -> (O, PairSummary) {
    sender.wait_for(LEAD_PACKETS);
    receiver.wait_for(LEAD_PACKETS);
    let start_ns = sender.lead().first().map_or(0, |first| first.packet.at_ns);
    let until_ns = options.period.until_ns(start_ns);
    let observer = PeriodFilter::new(observer, options.period.from_ns(start_ns));
    let lead = LeadPackets::new(sender.lead(), receiver.lead());
    let mut nat = Nat::new(options.addresses.iter().map(bytes).collect());
    for (there, here) in lead.ends {
        if there != here {
            nat.link(there, here);
        }
    }
    let offset_ns = lead.offset_ns.unwrap_or(0);
    let offset_ns = (!options.same_clock).then_some(offset_ns);
    let pair_state = PairState::new(options.max_transit_ns, offset_ns);
    let doubled = [&sender, &receiver]
        .map(|trace| DoubledLinks::new(trace.lead().iter().map(|entry| &entry.packet)));
    let mut engine = Engine::new(observer, pair_state, nat, lead.host_sides, doubled);
    loop {
        sender.fill();
        receiver.fill();
        let side = match (sender.first(), receiver.first()) {
            (Some(here), Some(there))
                if engine.pair_state.is_earlier(&here.packet, &there.packet) =>
            {
                Side::Sender
            }
            (_, Some(_)) => Side::Receiver,
            (Some(_), None) => Side::Sender,
            (None, None) => break,
        };
        let (source, other) = match side {
            Side::Sender => (&mut sender, &receiver),
            Side::Receiver => (&mut receiver, &sender),
        };
        if other.first().is_none() {
            engine.pair_state.mark_ended(side.other());
        }
        if let Some(upcoming) = source.peek(PREFETCH_CONNECTION) {
            engine.prefetch_connection(side, upcoming);
        }
        if let Some(upcoming) = source.peek(PREFETCH_STATE) {
            engine.prefetch_state(side, upcoming);
        }
        if let Some(next) = source.peek(PREFETCH_LINKS) {
            engine.prefetch_links(side, next);
        }
        if let Some(first) = source.first()
            && engine.pair_state.by_senders_clock(side, first.packet.at_ns) < until_ns
        {
            engine.packet(side, first);
        }
        source.advance();
    }
    let (observer, pair_state, nat) = engine.finish();
    let summary = PairSummary {
        clock: pair_state.clock(),
        translated_connections: nat.translations(),
    };
    (observer, summary)
}

fn bytes(&(there, here): &(IpAddr, IpAddr)) -> ([u8; 16], [u8; 16]) {
    let bytes = |address| Endpoint::from(SocketAddr::new(address, 0)).address;
    (bytes(there), bytes(here))
}

/// A packet and its fingerprint. The two readers compute it, because only one thread merges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FingerprintedPacket {
    pub(crate) packet: Packet,
    pub(crate) fingerprint: u64,
}

/// The packets of one trace, received from its reader in batches.
#[derive(Debug)]
pub(crate) struct PacketSource {
    from: Receiver<Vec<FingerprintedPacket>>,
    /// Returns used batches to the reader.
    return_batches: Sender<Vec<FingerprintedPacket>>,
    batch: Vec<FingerprintedPacket>,
    next: usize,
}

/// The reader's end of a [`PacketSource`].
#[derive(Debug)]
pub(crate) struct PacketSink {
    to: SyncSender<Vec<FingerprintedPacket>>,
    /// Returned batches, for reuse.
    returned_batches: Receiver<Vec<FingerprintedPacket>>,
}

/// Packets per batch: enough that waking the other thread is cheap.
const BATCH: usize = 2048;

/// Maximum number of waiting batches per reader.
const BATCHES: usize = 4;

/// Distance in packets at which a packet is prefetched from the reader's core. Without it, the
/// merging thread waits for another core's cache with each packet.
const PREFETCH_PACKETS: usize = 8;

impl PacketSource {
    /// An empty source, and the sink for its reader.
    pub(crate) fn new() -> (PacketSink, Self) {
        let (to, from) = sync_channel(BATCHES);
        let (return_batches, returned_batches) = channel();
        let source = Self {
            from,
            return_batches,
            batch: Vec::new(),
            next: 0,
        };
        (
            PacketSink {
                to,
                returned_batches,
            },
            source,
        )
    }

    /// Waits for this many packets, or for the end of the trace.
    pub(crate) fn wait_for(&mut self, packets: usize) {
        self.batch.reserve(packets + BATCH);
        while self.batch.len() < packets
            && let Ok(mut more) = self.from.recv()
        {
            self.batch.append(&mut more);
            self.recycle(more);
        }
    }

    fn recycle(&self, batch: Vec<FingerprintedPacket>) {
        // Fails once the reader has finished.
        let _ = self.return_batches.send(batch);
    }

    /// The first packets, after [`wait_for`](Self::wait_for).
    pub(crate) fn lead(&self) -> &[FingerprintedPacket] {
        &self.batch
    }

    /// Makes the next packet available to [`first`](Self::first), if there is one.
    #[inline]
    pub(crate) fn fill(&mut self) {
        while self.next >= self.batch.len()
            && let Ok(batch) = self.from.recv()
        {
            let returned_batches = mem::replace(&mut self.batch, batch);
            self.recycle(returned_batches);
            self.next = 0;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&FingerprintedPacket> {
        self.batch.get(self.next)
    }

    /// The packet this far after the first, if already received.
    #[inline]
    pub(crate) fn peek(&self, packets: usize) -> Option<&Packet> {
        let peek = self.batch.get(self.next + packets);
        peek.map(|entry| &entry.packet)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next += 1;
        if let Some(upcoming) = self.batch.get(self.next + PREFETCH_PACKETS) {
            prefetch(upcoming);
        }
    }
}

/// Sends all packets, until the receiver is dropped.
pub(crate) fn read(mut packets: impl Iterator<Item = Packet>, sink: &PacketSink) {
    loop {
        let mut batch = sink.returned_batches.try_recv().unwrap_or_default();
        batch.clear();
        batch.reserve(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = packets.next()
        {
            let fingerprint = fingerprint(&packet);
            batch.push(FingerprintedPacket {
                packet,
                fingerprint,
            });
        }
        if batch.is_empty() || sink.to.send(batch).is_err() {
            return;
        }
    }
}
