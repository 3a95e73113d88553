use std::net::SocketAddr;

use pillion_trace::pair::Clock;
use pillion_trace::{
    Acked, Arrival, Class, Connection, CopyKind, Direction, Endpoint, Fate, Observer,
    PathDirection, Range, Sent,
};
use serde::Serialize;

use super::Target;
use super::{Arrived, Copied, Event, Seen, What};
use crate::analysis::ExplainError;

/// Sees all packets, and keeps what concerns one byte.
#[derive(Debug)]
pub struct Witness {
    target: Target,
    /// By direction, until it is known which one is meant.
    kept: [Kept; 2],
    told: Option<Told>,
    connections: u64,
}

#[derive(Debug, Default)]
struct Kept {
    position: Option<i64>,
    sent: Vec<Sent>,
    fates: Vec<Fate>,
    acks: Vec<Acked>,
    range: Option<Range>,
    raw: Option<u32>,
    behind: Vec<Waited>,
    /// Behind the last byte that was sent.
    next: i64,
}

/// What the connection tells at its end.
#[derive(Debug)]
struct Told {
    direction: Direction,
    path_direction: PathDirection,
    sender: Endpoint,
    receiver: Endpoint,
}

/// What happened to a range of bytes. Times are by the clock of the trace at the sender.
#[derive(Debug, Clone, Serialize)]
pub struct Story {
    /// The connection's number, 1 for the first in the trace.
    pub connection: u64,
    /// The end that sent the range.
    pub sender: SocketAddr,
    /// The end that the range was sent to.
    pub receiver: SocketAddr,
    /// Whether the stream's sender is the one at the first trace.
    #[serde(skip)]
    pub from_first: bool,
    /// The range's first byte, counted from 1.
    pub begin: i64,
    /// The first byte behind it.
    pub end: i64,
    /// The first byte's sequence number on the wire.
    pub raw_seq: Option<u32>,
    /// When it was first sent, since the trace's first packet.
    pub first_sent_s: Option<f64>,
    /// From the range's first sending to the ACK that covers it.
    pub ack_latency_ms: Option<f64>,
    /// From the range's first sending until the transport layer had it.
    pub transport_latency_ms: Option<f64>,
    /// From the range's first sending until the application could read it.
    pub application_latency_ms: Option<f64>,
    /// In order of time.
    pub events: Vec<Event>,
    /// The byte that was missing when it arrived, so that it had to wait.
    pub waited_for: Option<i64>,
    /// Ranges behind it that were there before it.
    pub waited_behind: Vec<Waited>,
}

/// A range that arrived before the one in front of it did.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Waited {
    /// The range's first byte, counted from 1.
    pub begin: i64,
    /// The first byte behind it.
    pub end: i64,
    /// For how long the one in front was missing.
    pub ms: f64,
}

impl Witness {
    /// Of this byte.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            kept: Default::default(),
            told: None,
            connections: 0,
        }
    }

    fn kept(&mut self, connection: &Connection, direction: Direction) -> Option<&mut Kept> {
        let is_it = connection.number == self.target.connection;
        is_it.then(|| &mut self.kept[direction as usize])
    }

    /// What was kept, if it is one of these bytes that was meant.
    fn concerned(
        &mut self,
        connection: &Connection,
        direction: Direction,
        begin: i64,
        end: i64,
    ) -> Option<&mut Kept> {
        let byte = self.target.byte;
        let kept = self.kept(connection, direction)?;
        let half = connection.half_connection(direction);
        let found = kept.position.or_else(|| byte.within(begin, end, half))?;
        kept.position = Some(found);
        (begin..end).contains(&found).then_some(kept)
    }

    /// All of it in order, with the clocks of two traces, and when each trace begins, in
    /// nanoseconds since 1970.
    ///
    /// # Errors
    /// [`ExplainError`] if the trace does not show the byte.
    pub fn story(mut self, clock: Option<&Clock>, begin_ns: &[i64]) -> Result<Story, ExplainError> {
        let number = self.target.connection;
        let Some(told) = self.told else {
            return Err(ExplainError::NoConnection {
                connection: number,
                connections: self.connections,
            });
        };
        let kept = std::mem::take(&mut self.kept[told.direction as usize]);
        let Some(range) = kept.range else {
            return Err(ExplainError::NoByte {
                connection: number,
                sender: told.sender,
                bytes: kept.next.max(1) - 1,
            });
        };
        let from_first = clock.is_none() || told.path_direction == PathDirection::ToReceiver;
        let begin_ns = begin_ns.get(usize::from(!from_first)).copied();
        let begin_ns = begin_ns.unwrap_or_default();
        let first_ns = range.first_sent_ns();
        let first_copy = range.copies.first().map(|copy| copy.at_ns);
        let times = Times {
            base_ns: first_copy.or(range.acked_ns).unwrap_or(begin_ns),
            clock,
            path_direction: told.path_direction,
        };
        let far_ms = |at_ns: Option<i64>| first_ns.and(at_ns).and_then(|at| times.far_ms(at));
        Ok(Story {
            connection: number,
            sender: told.sender.into(),
            receiver: told.receiver.into(),
            from_first,
            begin: range.begin,
            end: range.end,
            raw_seq: kept.raw,
            first_sent_s: first_ns.map(|at| at.saturating_sub(begin_ns) as f64 / 1e9),
            ack_latency_ms: range.ack_latency_ns().map(ms),
            transport_latency_ms: far_ms(range.delivery.map(|delivery| delivery.at_ns)),
            application_latency_ms: far_ms(range.delivery.and_then(|d| d.in_order_ns())),
            waited_for: range.delivery.and_then(|delivery| delivery.behind),
            waited_behind: kept.behind,
            events: events(&range, &kept.sent, &kept.fates, &kept.acks, &times),
        })
    }
}

impl Observer for Witness {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if let Some(kept) = self.kept(connection, sent.direction) {
            kept.next = kept.next.max(sent.end);
        }
        if sent.class.carries_data()
            && let Some(kept) = self.concerned(connection, sent.direction, sent.begin, sent.end)
        {
            kept.sent.push(*sent);
        }
    }

    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        if fate.class.carries_data()
            && let Some(kept) = self.concerned(connection, fate.direction, fate.begin, fate.end)
        {
            kept.fates.push(*fate);
        }
    }

    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        let Some(kept) = self.kept(connection, acked.direction) else {
            return;
        };
        let Some(position) = kept.position else {
            return;
        };
        let reports = |(begin, end): (i64, i64)| (begin..end).contains(&position);
        let covers = acked.position > position;
        let first = covers && acked.position.saturating_sub_unsigned(acked.bytes) <= position;
        let waits = !covers && (acked.duplicate || acked.sacked_bytes > 0);
        if first || waits || acked.dsack.is_some_and(reports) {
            kept.acks.push(*acked);
        }
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        if let Some(kept) = self.concerned(connection, direction, range.begin, range.end) {
            kept.range.get_or_insert_with(|| range.clone());
            kept.raw = connection
                .half_connection(direction)
                .sequence_number(range.begin);
        } else if let Some(kept) = self.kept(connection, direction)
            && let Some(front) = &kept.range
            && let Some(missing_ns) = missing_ns(front, range)
        {
            kept.behind.push(Waited {
                begin: range.begin,
                end: range.end,
                ms: ms(missing_ns),
            });
        }
    }

    fn finished(&mut self, connection: &Connection) {
        self.connections = self.connections.max(connection.number);
        if connection.number != self.target.connection {
            return;
        }
        let main = connection.main_direction();
        let direction = if self.target.back {
            main.reverse()
        } else {
            main
        };
        let (sender, receiver) = match direction {
            Direction::Forward => (connection.originator, connection.responder),
            Direction::Backward => (connection.responder, connection.originator),
        };
        self.told = Some(Told {
            direction,
            path_direction: connection.path_direction(direction),
            sender,
            receiver,
        });
    }
}

/// For how long a range was there while the one in front of it was missing, in nanoseconds: as
/// the receiver's trace shows it, or else as SACK told the sender.
fn missing_ns(front: &Range, range: &Range) -> Option<i64> {
    let (came, here) = match (front.delivery, range.delivery) {
        (Some(front), Some(range)) => (front.at_ns, range.at_ns),
        (None, None) => (front.sacked_ns.or(front.acked_ns)?, range.sacked_ns?),
        _ => return None,
    };
    Some(came.saturating_sub(here)).filter(|missing_ns| *missing_ns > 0)
}

/// Times since a range was first sent.
struct Times<'a> {
    base_ns: i64,
    clock: Option<&'a Clock>,
    path_direction: PathDirection,
}

impl Times<'_> {
    fn here_ms(&self, at_ns: i64) -> f64 {
        ms(at_ns.saturating_sub(self.base_ns))
    }

    /// Of a time by the clock at the other end.
    fn far_ms(&self, at_ns: i64) -> Option<f64> {
        let raw_ns = at_ns.saturating_sub(self.base_ns);
        let ns = self
            .clock?
            .one_way_ns(self.path_direction, self.base_ns, raw_ns)?;
        Some(ns / 1e6)
    }
}

fn events(
    range: &Range,
    sent: &[Sent],
    fates: &[Fate],
    acks: &[Acked],
    times: &Times,
) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for sent in sent {
        let fate = fates.iter().find(|fate| fate.packet == sent.packet);
        events.push(Event {
            ms: Some(times.here_ms(sent.at_ns)),
            what: What::Sent {
                begin: sent.begin,
                end: sent.end,
                copy: copied(range, sent),
                fate: fate.map(arrived),
            },
            packet: Some(sent.packet),
            seen_at: Seen::Sender,
        });
    }
    events.extend(arrivals(range, fates, times));
    for acked in acks {
        events.extend(told_by(range, acked).map(|what| Event {
            ms: Some(times.here_ms(acked.at_ns)),
            what,
            packet: Some(acked.packet),
            seen_at: Seen::Sender,
        }));
    }
    sort(&mut events);
    events
}

/// By time; what one trace shows at one time, in its order.
fn sort(events: &mut [Event]) {
    let when = |event: &Event| event.ms.unwrap_or(f64::INFINITY);
    let place = |event: &Event| (event.seen_at, event.packet);
    events.sort_by(|one, other| {
        let by_time = when(one).total_cmp(&when(other));
        by_time.then_with(|| place(one).cmp(&place(other)))
    });
}

fn copied(range: &Range, sent: &Sent) -> Copied {
    let copies = &mut range.copies.iter();
    match copies.find(|copy| copy.packet == sent.packet) {
        Some(copy) => match copy.kind {
            CopyKind::New => Copied::New,
            CopyKind::Bundled => Copied::Bundled,
            CopyKind::Retransmission => Copied::Retransmitted,
        },
        // Sent once more when it was finished.
        None if sent.class == Class::Bundled => Copied::Bundled,
        None => Copied::Retransmitted,
    }
}

fn arrived(fate: &Fate) -> Arrived {
    match fate.arrival {
        Arrival::Delivered { .. } => Arrived::Delivered,
        Arrival::Unseen => Arrived::Unseen,
        Arrival::Lost => Arrived::Lost,
        Arrival::Unknown => Arrived::Unknown,
    }
}

/// At the receiver.
fn arrivals(range: &Range, fates: &[Fate], times: &Times) -> Vec<Event> {
    let delivery = range.delivery;
    let copy = delivery.and_then(|delivery| range.copies.get(delivery.copy()?));
    let first = copy.map(|copy| copy.packet);
    let mut events: Vec<Event> = Vec::new();
    for fate in fates {
        if let Arrival::Delivered { at_ns, packet, .. } = fate.arrival {
            events.push(Event {
                ms: times.far_ms(at_ns),
                what: What::Arrived {
                    sent_as: Some(fate.packet),
                    first: first == Some(fate.packet),
                },
                packet: Some(packet),
                seen_at: Seen::Receiver,
            });
        }
    }
    let at_receiver = |at_ns, what| Event {
        ms: times.far_ms(at_ns),
        what,
        packet: None,
        seen_at: Seen::Receiver,
    };
    if let Some(delivery) = delivery {
        if first.is_none() {
            let what = What::Arrived {
                sent_as: None,
                first: true,
            };
            events.push(at_receiver(delivery.at_ns, what));
        }
        if let Some(readable_ns) = delivery.in_order_ns().filter(|at| *at > delivery.at_ns) {
            events.push(at_receiver(readable_ns, What::Readable));
        }
    }
    events
}

/// What an ACK says about the range.
fn told_by(range: &Range, acked: &Acked) -> Option<What> {
    let covers = acked.position >= range.end;
    if covers && range.acked_ns == Some(acked.at_ns) && acked.bytes > 0 {
        Some(What::Acked)
    } else if acked.sacked_bytes > 0 && range.sacked_ns == Some(acked.at_ns) {
        Some(What::Sacked)
    } else if acked
        .dsack
        .is_some_and(|(begin, end)| begin <= range.begin && range.end <= end)
    {
        Some(What::Dsack)
    } else if acked.duplicate && (range.begin..range.end).contains(&acked.position) {
        Some(What::DuplicateAck)
    } else {
        None
    }
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_one_time_is_told_in_the_order_of_the_trace() {
        let event = |ms, packet, seen_at| Event {
            ms,
            what: What::DuplicateAck,
            packet: Some(packet),
            seen_at,
        };
        let mut events = [
            event(None, 1, Seen::Receiver),
            event(Some(2.0), 472, Seen::Sender),
            event(Some(2.0), 7, Seen::Receiver),
            event(Some(2.0), 471, Seen::Sender),
            event(Some(1.0), 500, Seen::Sender),
        ];
        sort(&mut events);
        let packets = events.map(|event| event.packet.unwrap());
        assert_eq!(packets, [500, 471, 472, 7, 1]);
    }
}
