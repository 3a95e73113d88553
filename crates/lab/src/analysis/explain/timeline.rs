use std::net::SocketAddr;

use pillion_trace::pair::Clock;
use pillion_trace::{
    Arrival, Class, Connection, CopyKind, Delivery, Direction, Disposition, Endpoint, Observer,
    PathDirection, Range, ReceivedAck, SentPacket,
};
use serde::Serialize;

use super::Target;
use super::{CopyReason, Event, EventKind, PacketDisposition, TraceSide};
use crate::analysis::ExplainError;

/// An observer that records the events that concern one byte.
#[derive(Debug)]
pub struct ByteObserver {
    target: Target,
    /// One log per direction, until the direction of the byte is known.
    logs: [DirectionLog; 2],
    stream: Option<StreamInfo>,
    connections: u64,
}

#[derive(Debug, Default)]
struct DirectionLog {
    position: Option<i64>,
    sent: Vec<SentPacket>,
    dispositions: Vec<Disposition>,
    acks: Vec<ReceivedAck>,
    range: Option<Range>,
    raw: Option<u32>,
    blocked: Vec<BlockedRange>,
    /// The end of all bytes that were sent, exclusive.
    end: i64,
}

/// The ends of the target's stream, known once its connection has finished.
#[derive(Debug)]
struct StreamInfo {
    direction: Direction,
    path_direction: PathDirection,
    sender: Endpoint,
    receiver: Endpoint,
}

/// The history of a byte range. All times are by the clock of the sender's trace.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// The connection's number, counted from 1.
    pub connection: u64,
    /// The end that sent the range.
    pub sender: SocketAddr,
    /// The end that received the range.
    pub receiver: SocketAddr,
    /// Whether the first trace was taken at the end that sent the range.
    #[serde(skip)]
    pub from_first: bool,
    /// The range's first byte, counted from 1.
    pub start: i64,
    /// The range's end, exclusive.
    pub end: i64,
    /// The sequence number of the first byte, as in the TCP header.
    pub raw_seq: Option<u32>,
    /// When it was first sent, in seconds since the trace's first packet.
    pub first_sent_s: Option<f64>,
    /// Time from the first transmission to the ACK that covers the range.
    pub ack_latency_ms: Option<f64>,
    /// Time from the first transmission to the range's arrival.
    pub transport_latency_ms: Option<f64>,
    /// Time from the first transmission until the application could read the range.
    pub application_latency_ms: Option<f64>,
    /// All events, by time.
    pub events: Vec<Event>,
    /// The first missing byte when the range arrived, if it had to wait for one.
    pub waited_for: Option<i64>,
    /// Later ranges that arrived earlier and had to wait for this one.
    pub blocked_ranges: Vec<BlockedRange>,
}

/// A range that waited for an earlier one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BlockedRange {
    /// The range's first byte, counted from 1.
    pub start: i64,
    /// The range's end, exclusive.
    pub end: i64,
    /// How long the range waited, in milliseconds.
    pub ms: f64,
}

impl ByteObserver {
    /// Creates an observer for this byte.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            logs: Default::default(),
            stream: None,
            connections: 0,
        }
    }

    fn log(&mut self, connection: &Connection, direction: Direction) -> Option<&mut DirectionLog> {
        let is_target = connection.number == self.target.connection;
        is_target.then(|| &mut self.logs[direction as usize])
    }

    /// Returns the log of the direction if the range from `start` to before `end` contains the
    /// target.
    fn log_of_byte(
        &mut self,
        connection: &Connection,
        direction: Direction,
        start: i64,
        end: i64,
    ) -> Option<&mut DirectionLog> {
        let byte = self.target.byte;
        let log = self.log(connection, direction)?;
        let half = connection.half_connection(direction);
        let position = log.position.or_else(|| byte.within(start, end, half))?;
        log.position = Some(position);
        (start..end).contains(&position).then_some(log)
    }

    /// Returns the complete history. `clock` relates the clocks of two traces, and `start_ns` has
    /// the start of each trace in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`ExplainError`] if the trace does not show the byte.
    pub fn timeline(
        mut self,
        clock: Option<&Clock>,
        start_ns: &[i64],
    ) -> Result<Timeline, ExplainError> {
        let number = self.target.connection;
        let Some(stream) = self.stream else {
            return Err(ExplainError::NoConnection {
                connection: number,
                connections: self.connections,
            });
        };
        let log = std::mem::take(&mut self.logs[stream.direction as usize]);
        let Some(range) = log.range else {
            return Err(ExplainError::NoByte {
                connection: number,
                sender: stream.sender,
                bytes: log.end.max(1) - 1,
            });
        };
        let from_first = clock.is_none() || stream.path_direction == PathDirection::ToReceiver;
        let start_ns = start_ns.get(usize::from(!from_first)).copied();
        let start_ns = start_ns.unwrap_or_default();
        let first_ns = range.first_sent_ns();
        let first_copy = range.copies.first().map(|copy| copy.at_ns);
        let times = RelativeTimes {
            base_ns: first_copy.or(range.acked_ns).unwrap_or(start_ns),
            clock,
            path_direction: stream.path_direction,
        };
        let receiver_ms =
            |at_ns: Option<i64>| first_ns.and(at_ns).and_then(|at| times.receiver_ms(at));
        Ok(Timeline {
            connection: number,
            sender: stream.sender.into(),
            receiver: stream.receiver.into(),
            from_first,
            start: range.start,
            end: range.end,
            raw_seq: log.raw,
            first_sent_s: first_ns.map(|at| at.saturating_sub(start_ns) as f64 / 1e9),
            ack_latency_ms: range.ack_latency_ns().map(ms),
            transport_latency_ms: receiver_ms(range.delivery.map(|delivery| delivery.at_ns)),
            application_latency_ms: receiver_ms(range.delivery.and_then(|d| d.in_order_ns())),
            waited_for: range.delivery.and_then(|delivery| delivery.waited_for),
            blocked_ranges: log.blocked,
            events: events(&range, &log.sent, &log.dispositions, &log.acks, &times),
        })
    }
}

impl Observer for ByteObserver {
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if let Some(log) = self.log(connection, sent.direction) {
            log.end = log.end.max(sent.end);
        }
        if sent.class.carries_data()
            && let Some(log) = self.log_of_byte(connection, sent.direction, sent.start, sent.end)
        {
            log.sent.push(*sent);
        }
    }

    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        if disposition.class.carries_data()
            && let Some(log) = self.log_of_byte(
                connection,
                disposition.direction,
                disposition.start,
                disposition.end,
            )
        {
            log.dispositions.push(*disposition);
        }
    }

    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        let Some(log) = self.log(connection, acked.direction) else {
            return;
        };
        let Some(position) = log.position else {
            return;
        };
        let is_reported = |(start, end): (i64, i64)| (start..end).contains(&position);
        let covers = acked.position > position;
        let first = covers && acked.position.saturating_sub_unsigned(acked.bytes) <= position;
        let is_pending = !covers && (acked.duplicate || acked.sacked_bytes > 0);
        if first || is_pending || acked.dsack.is_some_and(is_reported) {
            log.acks.push(*acked);
        }
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        if let Some(log) = self.log_of_byte(connection, direction, range.start, range.end) {
            log.range.get_or_insert_with(|| range.clone());
            log.raw = connection
                .half_connection(direction)
                .sequence_number(range.start);
        } else if let Some(log) = self.log(connection, direction)
            && let Some(earlier) = &log.range
            && let Some(missing_ns) = missing_ns(earlier, range)
        {
            log.blocked.push(BlockedRange {
                start: range.start,
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
        self.stream = Some(StreamInfo {
            direction,
            path_direction: connection.path_direction(direction),
            sender,
            receiver,
        });
    }
}

/// Returns how long a range waited for an earlier one, in nanoseconds. The receiver's trace shows
/// it; with only one trace, SACK does.
fn missing_ns(earlier: &Range, range: &Range) -> Option<i64> {
    let (front_ns, range_ns) = match (earlier.delivery, range.delivery) {
        (Some(earlier), Some(range)) => (earlier.at_ns, range.at_ns),
        (None, None) => (earlier.sacked_ns.or(earlier.acked_ns)?, range.sacked_ns?),
        _ => return None,
    };
    Some(front_ns.saturating_sub(range_ns)).filter(|missing_ns| *missing_ns > 0)
}

/// Converts times to milliseconds since a range was first sent.
struct RelativeTimes<'a> {
    base_ns: i64,
    clock: Option<&'a Clock>,
    path_direction: PathDirection,
}

impl RelativeTimes<'_> {
    fn sender_ms(&self, at_ns: i64) -> f64 {
        ms(at_ns.saturating_sub(self.base_ns))
    }

    /// Converts a time by the other end's clock; `None` if the clocks cannot be compared.
    fn receiver_ms(&self, at_ns: i64) -> Option<f64> {
        let raw_ns = at_ns.saturating_sub(self.base_ns);
        let ns = self
            .clock?
            .one_way_ns(self.path_direction, self.base_ns, raw_ns)?;
        Some(ns / 1e6)
    }
}

fn events(
    range: &Range,
    sent: &[SentPacket],
    dispositions: &[Disposition],
    acks: &[ReceivedAck],
    times: &RelativeTimes,
) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for sent in sent {
        let disposition = dispositions
            .iter()
            .find(|disposition| disposition.packet == sent.packet);
        events.push(Event {
            ms: Some(times.sender_ms(sent.at_ns)),
            kind: EventKind::Sent {
                start: sent.start,
                end: sent.end,
                copy: copy_reason(range, sent),
                disposition: disposition.map(packet_disposition),
            },
            packet: Some(sent.packet),
            seen_at: TraceSide::Sender,
        });
    }
    events.extend(arrivals(range, dispositions, times));
    for acked in acks {
        events.extend(ack_event(range, acked).map(|kind| Event {
            ms: Some(times.sender_ms(acked.at_ns)),
            kind,
            packet: Some(acked.packet),
            seen_at: TraceSide::Sender,
        }));
    }
    sort(&mut events);
    events
}

/// Sorts events by time. Simultaneous events of a trace keep their order in it.
fn sort(events: &mut [Event]) {
    let time_ms = |event: &Event| event.ms.unwrap_or(f64::INFINITY);
    let order = |event: &Event| (event.seen_at, event.packet);
    events.sort_by(|one, other| {
        let by_time = time_ms(one).total_cmp(&time_ms(other));
        by_time.then_with(|| order(one).cmp(&order(other)))
    });
}

fn copy_reason(range: &Range, sent: &SentPacket) -> CopyReason {
    let copies = &mut range.copies.iter();
    match copies.find(|copy| copy.packet == sent.packet) {
        Some(copy) => match copy.kind {
            CopyKind::New => CopyReason::New,
            CopyKind::Bundled => CopyReason::Bundled,
            CopyKind::Retransmission => CopyReason::Retransmitted,
        },
        // This copy was sent after the range was finished, so `copies` lacks it.
        None if sent.class == Class::Bundled => CopyReason::Bundled,
        None => CopyReason::Retransmitted,
    }
}

fn packet_disposition(disposition: &Disposition) -> PacketDisposition {
    match disposition.arrival {
        Arrival::Delivered { .. } => PacketDisposition::Delivered,
        Arrival::Unseen => PacketDisposition::Unseen,
        Arrival::Lost => PacketDisposition::Lost,
        Arrival::Unknown => PacketDisposition::Unknown,
    }
}

/// Returns the events at the receiver: arrivals, and when the range became readable.
fn arrivals(range: &Range, dispositions: &[Disposition], times: &RelativeTimes) -> Vec<Event> {
    let delivery = range.delivery;
    let copy = delivery.and_then(|delivery| range.copies.get(delivery.copy()?));
    let first = copy.map(|copy| copy.packet);
    let mut events: Vec<Event> = Vec::new();
    for disposition in dispositions {
        if let Arrival::Delivered {
            at_ns,
            packet,
            is_ambiguous,
            ..
        } = disposition.arrival
        {
            let is_first = |delivery: Delivery| delivery.at_ns == at_ns;
            events.push(Event {
                ms: times.receiver_ms(at_ns),
                kind: if is_ambiguous {
                    EventKind::Arrived {
                        sent_as: None,
                        first: delivery.is_some_and(is_first),
                    }
                } else {
                    EventKind::Arrived {
                        sent_as: Some(disposition.packet),
                        first: first == Some(disposition.packet),
                    }
                },
                packet: Some(packet),
                seen_at: TraceSide::Receiver,
            });
        }
    }
    let at_receiver = |at_ns, kind| Event {
        ms: times.receiver_ms(at_ns),
        kind,
        packet: None,
        seen_at: TraceSide::Receiver,
    };
    if let Some(delivery) = delivery {
        let is_first = |event: &Event| matches!(event.kind, EventKind::Arrived { first: true, .. });
        if !events.iter().any(is_first) {
            let kind = EventKind::Arrived {
                sent_as: None,
                first: true,
            };
            events.push(at_receiver(delivery.at_ns, kind));
        }
        if let Some(readable_ns) = delivery.in_order_ns().filter(|at| *at > delivery.at_ns) {
            events.push(at_receiver(readable_ns, EventKind::Readable));
        }
    }
    events
}

/// Returns the event that an ACK reports about the range.
fn ack_event(range: &Range, acked: &ReceivedAck) -> Option<EventKind> {
    let covers = acked.position >= range.end;
    if covers && range.acked_ns == Some(acked.at_ns) && acked.bytes > 0 {
        Some(EventKind::Acked)
    } else if acked.sacked_bytes > 0 && range.sacked_ns == Some(acked.at_ns) {
        Some(EventKind::Sacked)
    } else if acked
        .dsack
        .is_some_and(|(start, end)| start <= range.start && range.end <= end)
    {
        Some(EventKind::Dsack)
    } else if acked.duplicate && (range.start..range.end).contains(&acked.position) {
        Some(EventKind::DuplicateAck)
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
    fn simultaneous_events_keep_trace_order() {
        let event = |ms, packet, seen_at| Event {
            ms,
            kind: EventKind::DuplicateAck,
            packet: Some(packet),
            seen_at,
        };
        let mut events = [
            event(None, 1, TraceSide::Receiver),
            event(Some(2.0), 472, TraceSide::Sender),
            event(Some(2.0), 7, TraceSide::Receiver),
            event(Some(2.0), 471, TraceSide::Sender),
            event(Some(1.0), 500, TraceSide::Sender),
        ];
        sort(&mut events);
        let packets = events.map(|event| event.packet.unwrap());
        assert_eq!(packets, [500, 471, 472, 7, 1]);
    }
}
