use std::iter::Peekable;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::clock::Clock;
use super::engine::Engine;
use super::lead::{self, Lead};
use super::nat::Nat;
use super::sides::Sides;
use crate::connection::Side;
use crate::event::Observer;
use crate::packet::{Endpoint, Packet};

/// How two traces are brought together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A packet that has not arrived after this time is lost, in nanoseconds. Twice that much of
    /// what is sent is kept in memory.
    pub max_transit_ns: i64,
    /// Addresses that are changed on the way: as the receiver's trace shows it, as the sender's
    /// trace shows it. Ports stay. Others are found if the packets are otherwise the same.
    pub addresses: Vec<(IpAddr, IpAddr)>,
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
        }
    }
}

/// Packets that go from a reader to the analysis at one time, and how many such may wait.
const BATCH: usize = 1024;
const BATCHES: usize = 4;

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
        let (to_sender, from_sender) = sync_channel(BATCHES);
        let (to_receiver, from_receiver) = sync_channel(BATCHES);
        scope.spawn(move || read(sender, &to_sender));
        scope.spawn(move || read(receiver, &to_receiver));
        merge(from_sender, from_receiver, options, observer)
    })
}

fn read(packets: impl Iterator<Item = Packet>, to: &SyncSender<Vec<Packet>>) {
    let mut packets = packets.peekable();
    while packets.peek().is_some() {
        let batch: Vec<Packet> = packets.by_ref().take(BATCH).collect();
        if to.send(batch).is_err() {
            return;
        }
    }
}

fn merge<O: Observer>(
    sender: Receiver<Vec<Packet>>,
    receiver: Receiver<Vec<Packet>>,
    options: &Options,
    observer: O,
) -> (O, Finding) {
    let (mut sender, mut receiver) = (sender.into_iter().flatten(), receiver.into_iter().flatten());
    let first_of_sender: Vec<_> = sender.by_ref().take(lead::PACKETS).collect();
    let first_of_receiver: Vec<_> = receiver.by_ref().take(lead::PACKETS).collect();
    let mut nat = Nat::new(options.addresses.iter().map(bytes).collect());
    let lead = Lead::of(&first_of_sender, &first_of_receiver);
    for (there, here) in lead.ends {
        nat.link(there, here);
    }
    let sides = Sides::new(options.max_transit_ns, lead.offset_ns.unwrap_or(0));
    let mut engine = Engine::new(observer, sides, nat, lead.far);
    let mut sender = first_of_sender.into_iter().chain(sender).peekable();
    let mut receiver = first_of_receiver.into_iter().chain(receiver).peekable();
    while let Some((side, packet)) = earlier(&mut sender, &mut receiver, &engine.sides) {
        engine.packet(side, &packet);
    }
    let (observer, sides, nat) = engine.finish();
    let finding = Finding {
        clock: sides.clock(),
        translated_connections: nat.translations(),
    };
    (observer, finding)
}

fn earlier(
    sender: &mut Peekable<impl Iterator<Item = Packet>>,
    receiver: &mut Peekable<impl Iterator<Item = Packet>>,
    sides: &Sides,
) -> Option<(Side, Packet)> {
    let side = match (sender.peek(), receiver.peek()) {
        (Some(here), Some(there)) if sides.by_clock_of(Side::Sender, there.at_ns) < here.at_ns => {
            Side::Receiver
        }
        (Some(_), _) => Side::Sender,
        (None, _) => Side::Receiver,
    };
    let packet = match side {
        Side::Sender => sender.next(),
        Side::Receiver => receiver.next(),
    };
    Some((side, packet?))
}

fn bytes(&(there, here): &(IpAddr, IpAddr)) -> ([u8; 16], [u8; 16]) {
    let bytes = |address| Endpoint::from(SocketAddr::new(address, 0)).address;
    (bytes(there), bytes(here))
}
