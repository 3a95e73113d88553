use std::net::{IpAddr, SocketAddr};
use std::thread;

use super::clock::Clock;
use super::engine::Engine;
use super::lead::{self, Lead};
use super::nat::Nat;
use super::sides::Sides;
use super::source::{Source, read};
use crate::connection::{Side, doubled};
use crate::event::Observer;
use crate::packet::{Endpoint, Packet};
use crate::period::Period;
use crate::since::Since;

/// How two traces are brought together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A packet that has not arrived after this time is lost, in nanoseconds, unless what it carried
    /// has not arrived at all: an ACK may still tell that it did. Twice that much of what is sent is
    /// kept in memory.
    pub max_transit_ns: i64,
    /// Addresses that are changed on the way: as the receiver's trace shows it, as the sender's
    /// trace shows it. Ports stay. Others are found if the packets are otherwise the same.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// The part of both traces that is analysed, by the clock of the sender's.
    pub period: Period,
    /// Both traces were taken by one clock: delays are what they seem. If not, they are told by
    /// what the traces show of both clocks.
    pub same_clock: bool,
}

/// What was found of two traces as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// How their clocks relate.
    pub clock: Clock,
    /// Connections whose addresses or ports were found to be changed on the way.
    pub translated_connections: usize,
}

impl Default for Options {
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
/// Each is read by a thread of its own; both are taken by time, as far as their clocks can be
/// compared. Memory is bounded by what is under way.
pub fn analyse<O: Observer>(
    sender: impl Iterator<Item = Packet> + Send,
    receiver: impl Iterator<Item = Packet> + Send,
    options: &Options,
    observer: O,
) -> (O, Finding) {
    thread::scope(|scope| {
        let (to_sender, from_sender) = Source::new();
        let (to_receiver, from_receiver) = Source::new();
        scope.spawn(move || read(sender, &to_sender));
        scope.spawn(move || read(receiver, &to_receiver));
        merge(from_sender, from_receiver, options, observer)
    })
}

/// So many packets of its trace before a packet's turn, its connection is fetched; then what that
/// keeps elsewhere; then what this keeps elsewhere in turn.
const SOON: usize = 5;
const SOONER: usize = 2;
const NEXT: usize = 1;

fn merge<O: Observer>(
    mut sender: Source,
    mut receiver: Source,
    options: &Options,
    observer: O,
) -> (O, Finding) {
    sender.wait_for(lead::PACKETS);
    receiver.wait_for(lead::PACKETS);
    let begin_ns = sender
        .beginning()
        .first()
        .map_or(0, |first| first.packet.at_ns);
    let until_ns = options.period.until_ns(begin_ns);
    let observer = Since::new(observer, options.period.from_ns(begin_ns));
    let lead = Lead::of(sender.beginning(), receiver.beginning());
    let mut nat = Nat::new(options.addresses.iter().map(bytes).collect());
    for (there, here) in lead.ends {
        if there != here {
            nat.link(there, here);
        }
    }
    let offset_ns = lead.offset_ns.unwrap_or(0);
    let offset_ns = (!options.same_clock).then_some(offset_ns);
    let sides = Sides::new(options.max_transit_ns, offset_ns);
    let doubled = [&sender, &receiver]
        .map(|trace| doubled(trace.beginning().iter().map(|printed| &printed.packet)));
    let mut engine = Engine::new(observer, sides, nat, lead.places, doubled);
    loop {
        sender.fill();
        receiver.fill();
        let side = match (sender.first(), receiver.first()) {
            (Some(here), Some(there)) if engine.sides.is_earlier(&here.packet, &there.packet) => {
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
            engine.sides.end(side.other());
        }
        if let Some(soon) = source.ahead(SOON) {
            engine.prepare(side, soon);
        }
        if let Some(sooner) = source.ahead(SOONER) {
            engine.prepare_more(side, sooner);
        }
        if let Some(next) = source.ahead(NEXT) {
            engine.prepare_last(side, next);
        }
        if let Some(first) = source.first()
            && engine.sides.by_senders_clock(side, first.packet.at_ns) < until_ns
        {
            engine.packet(side, first);
        }
        source.advance();
    }
    let (observer, sides, nat) = engine.finish();
    let finding = Finding {
        clock: sides.clock(),
        translated_connections: nat.translations(),
    };
    (observer, finding)
}

fn bytes(&(there, here): &(IpAddr, IpAddr)) -> ([u8; 16], [u8; 16]) {
    let bytes = |address| Endpoint::from(SocketAddr::new(address, 0)).address;
    (bytes(there), bytes(here))
}
