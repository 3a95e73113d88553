//! The observer of an analysis, and the part of a trace that it is shown.

use crate::connection::Connection;
use crate::event::{Acked, Ahead, Arrived, Direction, Fate, PathDirection, Sent};
use crate::ranges::Range;

/// Is told what the analysis finds, as soon as it is certain. All methods do nothing unless
/// implemented.
///
/// Of each connection come first its packets and ACKs in the order of the trace, each byte range
/// once it is finished, and at the end the connection itself, with all that was counted.
pub trait Observer {
    /// By how much the clock of the trace at the receiver is ahead of the other; told before all
    /// else, and whenever a better estimate is known. Of one trace it is never told.
    fn clocks(&mut self, ahead: Ahead) {
        let _ = ahead;
    }

    /// A packet left its sender.
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        let _ = (connection, sent);
    }

    /// A packet reached its receiver, whether or not its sender's trace shows it. Of one trace it
    /// is never told.
    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        let _ = (connection, arrived);
    }

    /// An ACK reached the sender of what it acknowledges.
    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        let _ = (connection, acked);
    }

    /// All is known of a range of bytes; ranges come in order of position.
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let _ = (connection, direction, range);
    }

    /// The fate of a packet between the traces at the sender and at the receiver; the fates of
    /// one direction come in the order of sending.
    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        let _ = (connection, fate);
    }

    /// No more will come of a connection; its ranges have been shown.
    fn finished(&mut self, connection: &Connection) {
        let _ = connection;
    }
}

impl Observer for () {}

/// A part of a trace, by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// What was sent before is left out. It is read all the same, so that nothing is lost of what
    /// was in flight then: a latency belongs to the part in which it began.
    pub from: Option<When>,
    /// What was captured then or later is left out.
    pub until: Option<When>,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In nanoseconds since 1970.
    At(i64),
    /// In nanoseconds since the first TCP packet of the trace, of two that of the sender's.
    After(i64),
}

impl When {
    fn ns(self, begin_ns: i64) -> i64 {
        match self {
            Self::At(ns) => ns,
            Self::After(ns) => begin_ns.saturating_add(ns),
        }
    }
}

impl Period {
    /// The period's first nanosecond since 1970, by the clock of a trace that began at `begin_ns`;
    /// `i64::MIN` where it begins with the trace.
    #[must_use]
    pub fn from_ns(&self, begin_ns: i64) -> i64 {
        self.from.map_or(i64::MIN, |from| from.ns(begin_ns))
    }

    /// The first nanosecond that it has no more; `i64::MAX` where it ends with the trace.
    #[must_use]
    pub fn until_ns(&self, begin_ns: i64) -> i64 {
        self.until.map_or(i64::MAX, |until| until.ns(begin_ns))
    }
}

/// Tells an observer what belongs to a part of a trace that begins later than the trace, for all
/// before it is read as well: what was sent, arrived or was acknowledged then or later, and of what
/// lasts, such as the latency of a range, what was first sent then.
#[derive(Debug)]
pub(crate) struct Since<O> {
    pub(crate) observer: O,
    /// By the clock of either trace.
    from_ns: [i64; 2],
}

impl<O> Since<O> {
    /// `from_ns`: by the clock of the trace at the sender; `i64::MIN` of all.
    pub(crate) fn new(observer: O, from_ns: i64) -> Self {
        Self {
            observer,
            from_ns: [from_ns; 2],
        }
    }

    /// Has the part begin then, by the clock of the trace at the sender.
    pub(crate) fn begin_at(&mut self, from_ns: i64) {
        self.from_ns = [from_ns; 2];
    }

    /// When the part begins, by the clock of the trace at the sender.
    #[inline]
    pub(crate) fn begin_ns(&self) -> i64 {
        self.from_ns[0]
    }

    /// Whether a connection has had a packet in the part, so that it counts.
    #[inline]
    fn has_come_to(&self, connection: &Connection) -> bool {
        connection.last_ns >= self.begin_ns()
    }

    /// Whether what leaves in a direction at that time belongs to the part; the time is by the
    /// clock of the trace there.
    #[inline]
    fn has_sent(&self, connection: &Connection, direction: Direction, at_ns: i64) -> bool {
        at_ns >= self.from_ns[connection.path_direction(direction) as usize]
    }

    /// Whether what arrives in a direction at that time belongs to the part.
    #[inline]
    pub(crate) fn has_arrived(
        &self,
        connection: &Connection,
        direction: Direction,
        at_ns: i64,
    ) -> bool {
        self.has_sent(connection, direction.reverse(), at_ns)
    }

    /// Whether a fate belongs to the part: the packet was sent in it.
    #[inline]
    pub(crate) fn has_fate(&self, fate: &Fate) -> bool {
        fate.sent_ns >= self.from_ns[fate.path_direction as usize]
    }

    /// Whether a range does: it was first sent in the part, or, where the trace does not show that,
    /// arrived or was acknowledged in it.
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

impl<O: Observer> Observer for Since<O> {
    fn clocks(&mut self, ahead: Ahead) {
        if let Ahead::About(ahead_ns) = ahead
            && self.from_ns[0] > i64::MIN
        {
            self.from_ns[PathDirection::ToSender as usize] =
                self.from_ns[0].saturating_add(ahead_ns);
        }
        self.observer.clocks(ahead);
    }

    #[inline]
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if self.has_come_to(connection) {
            self.observer.sent(connection, sent);
        }
    }

    #[inline]
    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        if self.has_come_to(connection) {
            self.observer.arrived(connection, arrived);
        }
    }

    #[inline]
    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        if self.has_come_to(connection) {
            let sent_in_it = |rtt_ns: &i64| {
                let sent_ns = acked.at_ns.saturating_sub(*rtt_ns);
                self.has_sent(connection, acked.direction, sent_ns)
            };
            let acked = Acked {
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
    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        if self.has_fate(fate) {
            self.observer.fate(connection, fate);
        }
    }

    fn finished(&mut self, connection: &Connection) {
        if self.has_come_to(connection) {
            self.observer.finished(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970_or_from_the_first_packet() {
        let period = Period {
            from: Some(When::After(10)),
            until: Some(When::At(120)),
        };
        assert_eq!((period.from_ns(100), period.until_ns(100)), (110, 120));
        let all = Period::default();
        assert_eq!((all.from_ns(100), all.until_ns(100)), (i64::MIN, i64::MAX));
    }
}
