use crate::connection::{Connection, LEAD, Repeats, Table, doubled};
use crate::event::{Direction, Side};
use crate::observer::Observer;
use crate::observer::Period;
use crate::observer::Since;
use crate::packet::Packet;
use crate::packet::fingerprint;

/// The analysis of one trace.
///
/// Give it the packets in the order of the file; the [`Observer`] is told what they mean. Both
/// directions are analysed as if the trace had been taken at their sender; how true that is of
/// either depends on where it was taken.
#[derive(Debug)]
pub struct Analysis<O> {
    table: Table,
    observer: Since<O>,
    period: Period,
    /// What was captured then or later is left out.
    until_ns: i64,
    over: Vec<Connection>,
    /// The first packets, until they show whether the trace has every packet twice.
    lead: Option<Vec<Packet>>,
    repeats: Repeats,
}

impl<O: Observer> Analysis<O> {
    /// Begins.
    pub fn new(observer: O) -> Self {
        Self::of(observer, Period::default())
    }

    /// Begins, of a part of the trace.
    pub fn of(observer: O, period: Period) -> Self {
        Self {
            table: Table::new(false),
            observer: Since::new(observer, i64::MIN),
            period,
            until_ns: i64::MAX,
            over: Vec::new(),
            lead: Some(Vec::new()),
            repeats: Repeats::new(false),
        }
    }

    /// Takes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        match &mut self.lead {
            None => self.enter(packet),
            Some(lead) => {
                lead.push(*packet);
                if lead.len() == LEAD {
                    self.begin();
                }
            }
        }
    }

    /// Enters the first packets.
    #[cold]
    fn begin(&mut self) {
        if let Some(lead) = self.lead.take() {
            let begin_ns = lead.first().map_or(0, |first| first.at_ns);
            self.observer.begin_at(self.period.from_ns(begin_ns));
            self.until_ns = self.period.until_ns(begin_ns);
            self.repeats = Repeats::new(doubled(lead.iter()));
            for packet in &lead {
                self.enter(packet);
            }
        }
    }

    fn enter(&mut self, packet: &Packet) {
        if packet.at_ns >= self.until_ns {
            return;
        }
        match self.table.current(Side::Sender, packet) {
            Some((slot, direction)) => self.enter_in(slot, direction, packet),
            None => self.perhaps_new(packet),
        }
        while let Some(connection) = self.table.expired(packet.at_ns) {
            end(connection, &mut self.observer);
        }
    }

    /// Enters a packet that may open a connection.
    #[inline(never)]
    fn perhaps_new(&mut self, packet: &Packet) {
        let found = self
            .table
            .find(Side::Sender, packet, packet.at_ns, &mut self.over);
        for connection in self.over.drain(..) {
            end(connection, &mut self.observer);
        }
        if let Some(found) = found {
            if let Some((earlier, direction)) = found.earlier {
                self.enter_in(found.slot, direction, &earlier);
            }
            self.enter_in(found.slot, found.direction, packet);
        }
    }

    #[inline]
    fn enter_in(&mut self, slot: usize, direction: Direction, packet: &Packet) {
        if let Some(connection) = self.table.get_mut(slot)
            && see(
                connection,
                direction,
                packet,
                &mut self.repeats,
                &mut self.observer,
            )
        {
            self.table.close(slot, packet.at_ns);
        }
    }

    /// What it has been told so far; nothing before the first thousand packets.
    pub fn observer(&self) -> &O {
        &self.observer.observer
    }

    /// Ends: shows the observer what is left, and gives it back.
    pub fn finish(mut self) -> O {
        self.begin();
        let mut observer = self.observer;
        for connection in self.table.into_rest() {
            end(connection, &mut observer);
        }
        observer.observer
    }
}

/// Enters a packet; whether the connection is closed now and was not before.
fn see<O: Observer>(
    connection: &mut Connection,
    direction: Direction,
    packet: &Packet,
    repeats: &mut Repeats,
    observer: &mut Since<O>,
) -> bool {
    let whose = (connection.number, direction);
    if repeats.is_repeat(whose, packet, fingerprint(packet)) {
        let counts = &mut connection.half_connection_mut(direction).counts;
        counts.repeated_packets += 1;
        return false;
    }
    connection.sees(packet.at_ns, observer.begin_ns());
    connection.learn(direction, packet);
    connection.open_and_close(direction, packet);
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
    connection.closes_now()
}

/// Shows what is left of a connection.
fn end<O: Observer>(mut connection: Connection, observer: &mut Since<O>) {
    for direction in Direction::BOTH {
        while let Some(range) = connection.first_range(direction) {
            observer.range(&connection, direction, range);
            connection.drop_first_range(direction);
        }
    }
    connection.count_strays();
    observer.finished(&connection);
}
