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
use std::thread;

use crate::connection::DoubledLinks;
use crate::event::Side;
use crate::observer::{Observer, Period, PeriodFilter};
use crate::packet::{Endpoint, Packet};
use crate::source::{PacketSource, read};
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
        engine.prefetch(side, source);
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
