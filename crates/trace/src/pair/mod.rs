//! Two traces of the same connections, one taken at the sender and one at the receiver.
//!
//! A packet of the one is found again in the other by all of its header that the network leaves
//! alone, the k-th of equal ones for the k-th: which packets were lost, how long the others
//! took, which copy of a byte came first and what it had to wait for. Where neither IP
//! identification nor timestamps tell copies apart (IPv6 or identification 0, and timestamps
//! off) and one of several equal packets is lost, the number of losses is right and which of
//! them was lost is a guess.

mod clock;
mod engine;
mod hosts;
mod sides;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{mem, thread};

use crate::connection::doubled;
use crate::event::Side;
use crate::observer::{Observer, Period, Since};
use crate::packet::{Endpoint, Packet, fingerprint};
use crate::prefetch;
use engine::Engine;
use hosts::{LEAD_PACKETS, Lead, Nat};
use sides::Sides;

pub use clock::{Clock, LinearDelay};

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
    sender.wait_for(LEAD_PACKETS);
    receiver.wait_for(LEAD_PACKETS);
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

/// A packet and its fingerprint, which the reader takes: there are two readers, and one that
/// brings together what they read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printed {
    pub(crate) packet: Packet,
    pub(crate) print: u64,
}

/// The packets of one trace as its reader hands them over, many at a time.
#[derive(Debug)]
pub(crate) struct Source {
    from: Receiver<Vec<Printed>>,
    /// Takes back batches whose packets have been taken.
    emptied: Sender<Vec<Printed>>,
    batch: Vec<Printed>,
    place: usize,
}

/// The reader's end of a [`Source`].
#[derive(Debug)]
pub(crate) struct Handover {
    to: SyncSender<Vec<Printed>>,
    /// Batches to be filled again.
    empty: Receiver<Vec<Printed>>,
}

/// Packets that a reader hands over at one time: so many that waking the other thread costs
/// little.
const BATCH: usize = 2048;

/// Batches that may wait to be taken from a reader.
const BATCHES: usize = 4;

/// So many packets before its turn, a packet is fetched from the core that read it; without it the
/// merging thread waits for another core's cache with each packet.
const AHEAD: usize = 8;

impl Source {
    /// One that is empty yet, and the end for its reader.
    pub(crate) fn new() -> (Handover, Self) {
        let (to, from) = sync_channel(BATCHES);
        let (emptied, empty) = channel();
        let source = Self {
            from,
            emptied,
            batch: Vec::new(),
            place: 0,
        };
        (Handover { to, empty }, source)
    }

    /// Waits for so many packets, or for the end of the trace.
    pub(crate) fn wait_for(&mut self, packets: usize) {
        self.batch.reserve(packets + BATCH);
        while self.batch.len() < packets
            && let Ok(mut more) = self.from.recv()
        {
            self.batch.append(&mut more);
            self.give_back(more);
        }
    }

    fn give_back(&self, batch: Vec<Printed>) {
        // Nobody takes it once the whole trace has been read.
        let _ = self.emptied.send(batch);
    }

    /// The packets that were waited for.
    pub(crate) fn beginning(&self) -> &[Printed] {
        &self.batch
    }

    /// Makes sure that [`first`](Self::first) is the next packet, if there is one.
    #[inline]
    pub(crate) fn fill(&mut self) {
        while self.place >= self.batch.len()
            && let Ok(batch) = self.from.recv()
        {
            let emptied = mem::replace(&mut self.batch, batch);
            self.give_back(emptied);
            self.place = 0;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Printed> {
        self.batch.get(self.place)
    }

    /// The packet so many behind the first, if it has been read.
    #[inline]
    pub(crate) fn ahead(&self, packets: usize) -> Option<&Packet> {
        let ahead = self.batch.get(self.place + packets);
        ahead.map(|printed| &printed.packet)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.place += 1;
        if let Some(soon) = self.batch.get(self.place + AHEAD) {
            prefetch(soon);
        }
    }
}

/// Hands all packets over, until nobody takes them.
pub(crate) fn read(mut packets: impl Iterator<Item = Packet>, handover: &Handover) {
    loop {
        let mut batch = handover.empty.try_recv().unwrap_or_default();
        batch.clear();
        batch.reserve(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = packets.next()
        {
            let print = fingerprint(&packet);
            batch.push(Printed { packet, print });
        }
        if batch.is_empty() || handover.to.send(batch).is_err() {
            return;
        }
    }
}
