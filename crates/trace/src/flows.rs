use std::thread;

use crate::connection::{
    CaptureContext, Connection, ConnectionTable, DETECTION_PACKETS, DoubledLinks, RepeatDetector,
};
use crate::event::{Direction, Side};
use crate::observer::Observer;
use crate::observer::Period;
use crate::observer::PeriodFilter;
use crate::packet::{self, Packet};
use crate::source::{FingerprintedPacket, PacketSource, read};

/// Analyses the packets of one trace, in the order of its file. Another thread reads it.
pub fn analyse<O: Observer>(
    packets: impl Iterator<Item = Packet> + Send,
    period: Period,
    observer: O,
) -> O {
    thread::scope(|scope| {
        let (sink, mut source) = PacketSource::new();
        scope.spawn(move || read(packets, &sink));
        let mut analysis = Analysis::with_period(observer, period);
        source.fill();
        while let Some(entry) = source.first() {
            analysis.table.prefetch(Side::Sender, &source);
            analysis.entry(entry);
            source.advance();
            source.fill();
        }
        analysis.finish()
    })
}

/// The analysis of one trace.
///
/// Feed it the packets in the order of the file; it reports events to the [`Observer`]. Both
/// directions are analysed as if the trace had been taken at their sender. The accuracy of this
/// depends on where the trace was taken.
#[derive(Debug)]
pub struct Analysis<O> {
    table: ConnectionTable,
    observer: PeriodFilter<O>,
    period: Period,
    /// Packets captured at this time or later are ignored.
    until_ns: i64,
    superseded: Vec<Connection>,
    /// The first packets, stored until they show which links have every packet twice.
    lead: Option<Vec<FingerprintedPacket>>,
    repeats: RepeatDetector,
}

impl<O: Observer> Analysis<O> {
    /// Creates an analysis of the whole trace.
    pub fn new(observer: O) -> Self {
        Self::with_period(observer, Period::default())
    }

    /// Creates an analysis of a period of the trace.
    pub fn with_period(observer: O, period: Period) -> Self {
        Self {
            table: ConnectionTable::new(false),
            observer: PeriodFilter::new(observer, i64::MIN),
            period,
            until_ns: i64::MAX,
            superseded: Vec::new(),
            lead: Some(Vec::new()),
            repeats: RepeatDetector::new(DoubledLinks::default()),
        }
    }

    /// Processes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        self.entry(&FingerprintedPacket::new(*packet));
    }

    #[inline]
    fn entry(&mut self, entry: &FingerprintedPacket) {
        match &mut self.lead {
            None => self.process(entry),
            Some(lead) => {
                lead.push(*entry);
                if lead.len() == DETECTION_PACKETS {
                    self.start();
                }
            }
        }
    }

    /// Processes the stored first packets.
    #[cold]
    fn start(&mut self) {
        if let Some(lead) = self.lead.take() {
            let start_ns = lead.first().map_or(0, |first| first.packet.at_ns);
            self.observer.start_at(self.period.from_ns(start_ns));
            self.until_ns = self.period.until_ns(start_ns);
            self.repeats = RepeatDetector::new(DoubledLinks::new(lead.iter().map(|it| &it.packet)));
            for entry in &lead {
                self.process(entry);
            }
        }
    }

    fn process(&mut self, entry: &FingerprintedPacket) {
        let FingerprintedPacket {
            packet,
            fingerprint,
            flow_hash,
        } = entry;
        if packet.at_ns >= self.until_ns {
            return;
        }
        match self.table.current(Side::Sender, packet, *flow_hash) {
            Some((slot, direction)) => self.process_in(slot, direction, packet, *fingerprint),
            None => self.find_or_open(packet, *fingerprint),
        }
        while let Some(connection) = self.table.take_expired(packet.at_ns) {
            finish_connection(connection, &mut self.observer);
        }
    }

    /// Processes a packet that may open a connection.
    #[inline(never)]
    fn find_or_open(&mut self, packet: &Packet, fingerprint: u64) {
        let found = self
            .table
            .find(Side::Sender, packet, packet.at_ns, &mut self.superseded);
        for connection in self.superseded.drain(..) {
            finish_connection(connection, &mut self.observer);
        }
        if let Some(found) = found {
            if let Some((earlier, direction)) = found.earlier {
                let fingerprint = packet::fingerprint(&earlier);
                self.process_in(found.slot, direction, &earlier, fingerprint);
            }
            self.process_in(found.slot, found.direction, packet, fingerprint);
        }
    }

    #[inline]
    fn process_in(&mut self, slot: usize, direction: Direction, packet: &Packet, fingerprint: u64) {
        if let Some(connection) = self.table.get_mut(slot)
            && process_packet(
                connection,
                direction,
                packet,
                fingerprint,
                &mut self.repeats,
                &mut self.observer,
            )
        {
            self.table.close(slot, packet.at_ns);
        }
    }

    /// The observer, which has seen nothing before the first thousand packets.
    pub fn observer(&self) -> &O {
        &self.observer.observer
    }

    /// Reports the remaining connections and returns the observer.
    pub fn finish(mut self) -> O {
        self.start();
        let mut observer = self.observer;
        for connection in self.table.into_remaining() {
            finish_connection(connection, &mut observer);
        }
        observer.observer
    }
}

/// Processes a packet. True if it closes the connection.
fn process_packet<O: Observer>(
    connection: &mut Connection,
    direction: Direction,
    packet: &Packet,
    fingerprint: u64,
    repeats: &mut RepeatDetector,
    observer: &mut PeriodFilter<O>,
) -> bool {
    let context = CaptureContext {
        stream: (connection.number, direction),
        at_sender: true,
        received: connection
            .half_connection(direction.reverse())
            .counts
            .packets,
    };
    if let Some(repeat) = repeats.find(packet, fingerprint, &context) {
        let half = connection.half_connection_mut(direction);
        half.repeated(packet, repeat);
        return false;
    }
    connection.observe_time(packet.at_ns, observer.start_ns());
    connection.learn_numbering(direction, packet);
    connection.update_state(direction, packet);
    if let Some(sent) = connection.sent(direction, packet) {
        observer.sent(connection, &sent);
    }
    if let Some(acked) = connection.acked(direction, packet) {
        observer.acked(connection, &acked);
    }
    for direction in Direction::BOTH {
        while connection.has_finished_range(direction) {
            if let Some(range) = connection.first_range(direction) {
                observer.range(connection, direction, range);
            }
            connection.drop_first_range(direction);
        }
    }
    connection.newly_closed()
}

/// Reports the rest of a connection.
fn finish_connection<O: Observer>(mut connection: Connection, observer: &mut PeriodFilter<O>) {
    for direction in Direction::BOTH {
        while let Some(range) = connection.first_range(direction) {
            observer.range(&connection, direction, range);
            connection.drop_first_range(direction);
        }
    }
    connection.count_strays();
    connection.classify_repeats();
    observer.finished(&connection);
}
