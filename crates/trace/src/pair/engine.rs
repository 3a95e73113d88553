use super::Printed;
use super::hosts::Nat;
use super::hosts::Places;
use super::sides::Sides;
use super::view::View;
use crate::connection::{Connection, Found, Repeats, Table};
use crate::event::Ahead;
use crate::event::{Direction, Side};
use crate::observer::Observer;
use crate::observer::Since;
use crate::packet::Packet;
use crate::packet::fingerprint;

/// Brings the packets of two traces together, which come in about the order of time.
#[derive(Debug)]
pub(crate) struct Engine<O> {
    table: Table,
    observer: Since<O>,
    pub(crate) sides: Sides,
    pub(crate) nat: Nat,
    places: Places,
    over: Vec<Connection>,
    /// Of each trace.
    repeats: [Repeats; 2],
    /// What the observer was told of the clocks.
    told_ahead: Option<Ahead>,
}

impl<O: Observer> Engine<O> {
    pub(crate) fn new(
        observer: Since<O>,
        sides: Sides,
        nat: Nat,
        places: Places,
        doubled: [bool; 2],
    ) -> Self {
        Self {
            table: Table::new(true),
            observer,
            sides,
            nat,
            places,
            over: Vec::new(),
            repeats: doubled.map(Repeats::new),
            told_ahead: None,
        }
    }

    /// Prepares for a packet that comes soon.
    #[inline]
    pub(crate) fn prepare(&self, side: Side, packet: &Packet) {
        self.table.fetch(side, packet);
    }

    /// Prepares for a packet for which it has been prepared, and that comes sooner.
    #[inline]
    pub(crate) fn prepare_more(&self, side: Side, packet: &Packet) {
        self.table.fetch_kept(side, packet);
    }

    /// Prepares for a packet for which both has been done, and that comes next.
    #[inline]
    pub(crate) fn prepare_last(&self, side: Side, packet: &Packet) {
        self.table.fetch_kept_by_links(side, packet);
    }

    pub(crate) fn packet(&mut self, side: Side, printed: &Printed) {
        let now_ns = self.sides.saw(side, printed.packet.at_ns);
        let ahead = self.sides.ahead();
        if self.told_ahead != Some(ahead) {
            self.told_ahead = Some(ahead);
            self.observer.clocks(ahead);
        }
        if side == Side::Receiver && self.nat.translates() {
            let packet = self.nat.translate(&printed.packet);
            self.translated(side, &packet, printed, now_ns);
        } else {
            self.translated(side, &printed.packet, printed, now_ns);
        }
        while let Some(connection) = self.table.expired(now_ns) {
            end(connection, &mut self.sides, &mut self.observer);
        }
    }

    /// Takes a packet with its addresses and ports at the sender's trace, as far as they are known.
    #[inline(always)]
    fn translated(&mut self, side: Side, packet: &Packet, printed: &Printed, now_ns: i64) {
        match self.table.current(side, packet) {
            Some((slot, direction)) if !packet.flags.syn => {
                self.enter(slot, direction, side, packet, printed.print, now_ns);
            }
            _ => self.perhaps_new(side, packet, printed, now_ns),
        }
    }

    /// Takes a packet that may open a connection.
    #[inline(never)]
    fn perhaps_new(&mut self, side: Side, packet: &Packet, printed: &Printed, now_ns: i64) {
        let print = printed.print;
        let mut recognised = None;
        if side == Side::Sender {
            self.nat.announce(print, packet);
        } else if !self.table.knows(packet) && self.nat.recognise(print, &printed.packet) {
            recognised = Some(self.nat.translate(&printed.packet));
        }
        let packet = recognised.as_ref().unwrap_or(packet);
        let found = self.table.find(side, packet, now_ns, &mut self.over);
        for connection in self.over.drain(..) {
            end(connection, &mut self.sides, &mut self.observer);
        }
        let Some(Found {
            slot,
            direction,
            earlier,
        }) = found
        else {
            return;
        };
        if let Some((earlier, direction)) = earlier {
            let print = fingerprint(&earlier);
            self.enter(slot, direction, side, &earlier, print, now_ns);
        }
        self.enter(slot, direction, side, packet, print, now_ns);
    }

    /// Enters a packet in its connection.
    #[inline]
    fn enter(
        &mut self,
        slot: usize,
        direction: Direction,
        side: Side,
        packet: &Packet,
        print: u64,
        now_ns: i64,
    ) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if connection.reversed.is_none() {
            place(connection, &self.places);
        }
        let whose = (connection.number, direction);
        if self.repeats[side as usize].is_repeat(whose, packet, print) {
            let counts = &mut connection.half_connection_mut(direction).counts;
            counts.repeated_packets += 1;
            return;
        }
        let mut view = View {
            connection,
            sides: &mut self.sides,
            observer: &mut self.observer,
            ended: false,
        };
        view.packet(direction, side, packet, print, now_ns);
        if view.connection.closes_now() {
            self.table.close(slot, now_ns);
        }
    }

    /// Shows the observer what is left.
    pub(crate) fn finish(self) -> (O, Sides, Nat) {
        let Self {
            table,
            mut observer,
            mut sides,
            nat,
            ..
        } = self;
        sides.end(Side::Sender);
        sides.end(Side::Receiver);
        for connection in table.into_rest() {
            end(connection, &mut sides, &mut observer);
        }
        (observer.observer, sides, nat)
    }
}

/// Decides which end is at which trace.
#[cold]
fn place(connection: &mut Connection, places: &Places) {
    connection.reversed = Some(places.is_reversed(connection));
    connection.seen.between_traces = places.are_ends_of(connection);
}

fn end<O: Observer>(mut connection: Connection, sides: &mut Sides, observer: &mut Since<O>) {
    let mut view = View {
        connection: &mut connection,
        sides,
        observer,
        ended: true,
    };
    for direction in Direction::BOTH {
        view.arrivals(direction);
        view.acked_to_the_end(direction);
        view.fates(direction);
        while view.connection.first_range(direction).is_some() {
            view.range(direction);
        }
        view.connection.link_mut(direction).passage.end_run();
    }
    connection.count_strays();
    observer.finished(&connection);
}
