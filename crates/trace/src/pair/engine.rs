use super::hosts::HostSides;
use super::hosts::Nat;
use super::pair_state::PairState;
use super::view::ConnectionView;
use crate::connection::{
    CaptureContext, Connection, ConnectionTable, DoubledLinks, Lookup, RepeatDetector,
};
use crate::event::ClockOffset;
use crate::event::{Direction, PathDirection, Side};
use crate::observer::Observer;
use crate::observer::PeriodFilter;
use crate::packet::{self, Packet, flow_hash};
use crate::source::{FingerprintedPacket, PacketSource};

/// Combines the packets of two traces, which arrive approximately in order of time.
#[derive(Debug)]
pub(crate) struct Engine<O> {
    table: ConnectionTable,
    observer: PeriodFilter<O>,
    pub(crate) pair_state: PairState,
    pub(crate) nat: Nat,
    host_sides: HostSides,
    superseded: Vec<Connection>,
    /// One per trace.
    repeats: [RepeatDetector; 2],
    /// The last clock offset reported to the observer.
    reported_offset: Option<ClockOffset>,
}

impl<O: Observer> Engine<O> {
    pub(crate) fn new(
        observer: PeriodFilter<O>,
        pair_state: PairState,
        nat: Nat,
        host_sides: HostSides,
        doubled: [DoubledLinks; 2],
    ) -> Self {
        Self {
            table: ConnectionTable::new(true),
            observer,
            pair_state,
            nat,
            host_sides,
            superseded: Vec::new(),
            repeats: doubled.map(RepeatDetector::new),
            reported_offset: None,
        }
    }

    /// Prefetches what the next packets of a trace need.
    #[inline]
    pub(crate) fn prefetch(&self, side: Side, packets: &PacketSource) {
        self.table.prefetch(side, packets);
    }

    pub(crate) fn packet(&mut self, side: Side, entry: &FingerprintedPacket) {
        let now_ns = self.pair_state.observe(side, entry.packet.at_ns);
        let ahead = self.pair_state.ahead();
        if self.reported_offset != Some(ahead) {
            self.reported_offset = Some(ahead);
            self.observer.clocks(ahead);
        }
        if side == Side::Receiver && self.nat.translates() {
            let packet = self.nat.translate(&entry.packet);
            self.process_translated(side, &packet, flow_hash(&packet), entry, now_ns);
        } else {
            self.process_translated(side, &entry.packet, entry.flow_hash, entry, now_ns);
        }
        while let Some(connection) = self.table.take_expired(now_ns) {
            finish_connection(connection, &mut self.pair_state, &mut self.observer);
        }
    }

    /// Processes a packet with its addresses and ports translated to the sender's trace, if known.
    #[inline(always)]
    fn process_translated(
        &mut self,
        side: Side,
        packet: &Packet,
        flow_hash: u32,
        entry: &FingerprintedPacket,
        now_ns: i64,
    ) {
        match self.table.current(side, packet, flow_hash) {
            Some((slot, direction)) if !packet.flags.syn => {
                self.process(slot, direction, side, packet, entry.fingerprint, now_ns);
            }
            _ => self.find_or_open(side, packet, entry, now_ns),
        }
    }

    /// Processes a packet that may open a connection.
    #[inline(never)]
    fn find_or_open(
        &mut self,
        side: Side,
        packet: &Packet,
        entry: &FingerprintedPacket,
        now_ns: i64,
    ) {
        let fingerprint = entry.fingerprint;
        let mut recognised = None;
        if side == Side::Sender {
            self.nat.announce(fingerprint, packet);
        } else if !self.table.contains(packet) && self.nat.recognise(fingerprint, &entry.packet) {
            recognised = Some(self.nat.translate(&entry.packet));
        }
        let packet = recognised.as_ref().unwrap_or(packet);
        let found = self.table.find(side, packet, now_ns, &mut self.superseded);
        for connection in self.superseded.drain(..) {
            finish_connection(connection, &mut self.pair_state, &mut self.observer);
        }
        let Some(Lookup {
            slot,
            direction,
            earlier,
        }) = found
        else {
            return;
        };
        if let Some((earlier, direction)) = earlier {
            let fingerprint = packet::fingerprint(&earlier);
            self.process(slot, direction, side, &earlier, fingerprint, now_ns);
        }
        self.process(slot, direction, side, packet, fingerprint, now_ns);
    }

    /// Processes a packet of a known connection.
    #[inline]
    fn process(
        &mut self,
        slot: usize,
        direction: Direction,
        side: Side,
        packet: &Packet,
        fingerprint: u64,
        now_ns: i64,
    ) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if connection.reversed.is_none() {
            assign_sides(connection, &self.host_sides);
        }
        let at_sender = match connection.path_direction(direction) {
            PathDirection::ToReceiver => side == Side::Sender,
            PathDirection::ToSender => side == Side::Receiver,
        };
        let context = CaptureContext {
            stream: (connection.number, direction),
            at_sender,
            received: connection
                .half_connection(direction.reverse())
                .counts
                .packets,
        };
        if let Some(repeat) = self.repeats[side as usize].find(packet, fingerprint, &context) {
            let half = connection.half_connection_mut(direction);
            half.repeated(packet, repeat);
            if at_sender {
                connection.link_mut(direction).departs_again(fingerprint);
            }
            return;
        }
        let mut view = ConnectionView {
            connection,
            pair_state: &mut self.pair_state,
            observer: &mut self.observer,
            ended: false,
        };
        view.packet(direction, side, packet, fingerprint, now_ns);
        if view.connection.newly_closed() {
            self.table.close(slot, now_ns);
        }
    }

    /// Reports the remaining connections.
    pub(crate) fn finish(self) -> (O, PairState, Nat) {
        let Self {
            table,
            mut observer,
            mut pair_state,
            nat,
            ..
        } = self;
        pair_state.mark_ended(Side::Sender);
        pair_state.mark_ended(Side::Receiver);
        for connection in table.into_remaining() {
            finish_connection(connection, &mut pair_state, &mut observer);
        }
        (observer.observer, pair_state, nat)
    }
}

/// Decides which end is at which trace.
#[cold]
fn assign_sides(connection: &mut Connection, host_sides: &HostSides) {
    connection.reversed = Some(host_sides.is_reversed(connection));
    connection.seen.between_traces = host_sides.spans_both_traces(connection);
}

fn finish_connection<O: Observer>(
    mut connection: Connection,
    pair_state: &mut PairState,
    observer: &mut PeriodFilter<O>,
) {
    let mut view = ConnectionView {
        connection: &mut connection,
        pair_state,
        observer,
        ended: true,
    };
    for direction in Direction::BOTH {
        view.arrivals(direction);
        view.apply_final_acks(direction);
        view.dispositions(direction);
        while view.connection.first_range(direction).is_some() {
            view.range(direction);
        }
        view.connection.link_mut(direction).delivery_stats.end_run();
    }
    connection.count_strays();
    connection.classify_repeats();
    observer.finished(&connection);
}
