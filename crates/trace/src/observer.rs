//! The observer of an analysis, and the period that it observes.

use crate::connection::Connection;
use crate::event::{
    ArrivedPacket, ClockOffset, Direction, Disposition, PathDirection, ReceivedAck, SentPacket,
};
use crate::ranges::Range;

/// Receives the events of the analysis as soon as they are certain. All methods do nothing by
/// default.
///
/// Per connection, packets and ACKs come in trace order. Each byte range follows once it is
/// finished, and at last the connection with its counters.
pub trait Observer {
    /// Reports the clock offset of the receiver's trace: before everything else, and again with
    /// each better estimate. Not called with one trace.
    fn clocks(&mut self, ahead: ClockOffset) {
        let _ = ahead;
    }

    /// A packet left its sender.
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        let _ = (connection, sent);
    }

    /// A packet reached its receiver, whether or not the sender's trace shows it. Not called with
    /// one trace.
    fn arrived(&mut self, connection: &Connection, arrived: &ArrivedPacket) {
        let _ = (connection, arrived);
    }

    /// An ACK reached the sender of the acknowledged data.
    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        let _ = (connection, acked);
    }

    /// A byte range is finished; ranges come in order of position.
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let _ = (connection, direction, range);
    }

    /// The disposition of a packet between the two traces; per direction in order of transmission.
    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        let _ = (connection, disposition);
    }

    /// A connection is finished, after its ranges.
    fn finished(&mut self, connection: &Connection) {
        let _ = connection;
    }
}

impl Observer for () {}

/// A period of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// Earlier packets are read but not counted, so data in flight stays known. A latency belongs
    /// to the period in which it started.
    pub from: Option<TimePoint>,
    /// Packets captured at this time or later are ignored.
    pub until: Option<TimePoint>,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimePoint {
    /// In nanoseconds since 1970.
    At(i64),
    /// In nanoseconds since the first TCP packet of the trace; with two traces, of the sender's.
    After(i64),
}

impl TimePoint {
    fn ns(self, start_ns: i64) -> i64 {
        match self {
            Self::At(ns) => ns,
            Self::After(ns) => start_ns.saturating_add(ns),
        }
    }
}

impl Period {
    /// The first nanosecond of the period since 1970, for a trace that started at `start_ns`;
    /// `i64::MIN` without a start.
    #[must_use]
    pub fn from_ns(&self, start_ns: i64) -> i64 {
        self.from.map_or(i64::MIN, |from| from.ns(start_ns))
    }

    /// The first nanosecond after the period; `i64::MAX` without an end.
    #[must_use]
    pub fn until_ns(&self, start_ns: i64) -> i64 {
        self.until.map_or(i64::MAX, |until| until.ns(start_ns))
    }
}

/// Forwards only events that belong to a period, because earlier packets are read as well. A packet
/// or ACK belongs to the period of its capture. A latency or other duration belongs to that of its
/// first transmission.
#[derive(Debug)]
pub(crate) struct PeriodFilter<O> {
    pub(crate) observer: O,
    /// Start of the period by the clock of each trace.
    from_ns: [i64; 2],
}

impl<O> PeriodFilter<O> {
    /// `from_ns`: by the clock of the sender's trace; `i64::MIN` for the whole trace.
    pub(crate) fn new(observer: O, from_ns: i64) -> Self {
        Self {
            observer,
            from_ns: [from_ns; 2],
        }
    }

    /// Sets the start of the period, by the clock of the sender's trace.
    pub(crate) fn start_at(&mut self, from_ns: i64) {
        self.from_ns = [from_ns; 2];
    }

    /// Start of the period, by the clock of the sender's trace.
    #[inline]
    pub(crate) fn start_ns(&self) -> i64 {
        self.from_ns[0]
    }

    /// Whether a connection has had a packet in the period.
    #[inline]
    fn has_reached(&self, connection: &Connection) -> bool {
        connection.last_ns >= self.start_ns()
    }

    /// Whether a departure in a direction belongs to the period; the time is by the clock at its
    /// sender.
    #[inline]
    fn has_sent(&self, connection: &Connection, direction: Direction, at_ns: i64) -> bool {
        at_ns >= self.from_ns[connection.path_direction(direction) as usize]
    }

    /// Whether an arrival in a direction belongs to the period.
    #[inline]
    pub(crate) fn has_arrived(
        &self,
        connection: &Connection,
        direction: Direction,
        at_ns: i64,
    ) -> bool {
        self.has_sent(connection, direction.reverse(), at_ns)
    }

    /// Whether a disposition belongs to the period: the packet was sent in it.
    #[inline]
    pub(crate) fn has_disposition(&self, disposition: &Disposition) -> bool {
        disposition.sent_ns >= self.from_ns[disposition.path_direction as usize]
    }

    /// Whether a range belongs to the period: first sent in it, or arrived or acknowledged in it if
    /// its transmission is not in the trace.
    #[inline]
    pub(crate) fn has_range(
        &self,
        connection: &Connection,
        direction: Direction,
        range: &Range,
    ) -> bool {
        if let Some(sent_ns) = range.first_sent_ns() {
            self.has_sent(connection, direction, sent_ns)
        } else if let Some(delivery) = range.delivery {
            self.has_arrived(connection, direction, delivery.at_ns)
        } else {
            let acked_ns = range.acked_ns;
            acked_ns.is_none_or(|acked_ns| self.has_sent(connection, direction, acked_ns))
        }
    }
}

impl<O: Observer> Observer for PeriodFilter<O> {
    fn clocks(&mut self, ahead: ClockOffset) {
        if let ClockOffset::Estimated(ahead_ns) = ahead
            && self.from_ns[0] > i64::MIN
        {
            self.from_ns[PathDirection::ToSender as usize] =
                self.from_ns[0].saturating_add(ahead_ns);
        }
        self.observer.clocks(ahead);
    }

    #[inline]
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if self.has_reached(connection) {
            self.observer.sent(connection, sent);
        }
    }

    #[inline]
    fn arrived(&mut self, connection: &Connection, arrived: &ArrivedPacket) {
        if self.has_reached(connection) {
            self.observer.arrived(connection, arrived);
        }
    }

    #[inline]
    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        if self.has_reached(connection) {
            let sent_in_it = |rtt_ns: &i64| {
                let sent_ns = acked.at_ns.saturating_sub(*rtt_ns);
                self.has_sent(connection, acked.direction, sent_ns)
            };
            let acked = ReceivedAck {
                rtt_ns: acked.rtt_ns.filter(sent_in_it),
                ..*acked
            };
            self.observer.acked(connection, &acked);
        }
    }

    #[inline]
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        if self.has_range(connection, direction, range) {
            self.observer.range(connection, direction, range);
        }
    }

    #[inline]
    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        if self.has_disposition(disposition) {
            self.observer.disposition(connection, disposition);
        }
    }

    fn finished(&mut self, connection: &Connection) {
        if self.has_reached(connection) {
            self.observer.finished(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_times_are_absolute_or_relative() {
        let period = Period {
            from: Some(TimePoint::After(10)),
            until: Some(TimePoint::At(120)),
        };
        assert_eq!((period.from_ns(100), period.until_ns(100)), (110, 120));
        let all = Period::default();
        assert_eq!((all.from_ns(100), all.until_ns(100)), (i64::MIN, i64::MAX));
    }
}
