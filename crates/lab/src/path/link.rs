//! The link: a fixed rate or a recorded link, and the FIFO before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::path::delay::DueTime;
use crate::path::{Direction, LinkTrace, OPPORTUNITY_BYTES};

/// Transmits packets one after the other.
///
/// A packet's transmission time, and therefore its departure, is known at its arrival. So only the
/// queue's occupancy is stored.
pub(crate) struct Link {
    server: Server,
    queue_packets: usize,
    /// Start of transmission of each waiting packet.
    starts: VecDeque<Instant>,
}

/// The transmission of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmission {
    /// Time at which the packet leaves the queue.
    pub start: Instant,
    /// Time at which the whole packet has left the link.
    pub departure: Instant,
}

enum Server {
    Unlimited,
    Rate {
        rate_bps: u64,
        /// Time until which the link is busy.
        busy_until: Option<Instant>,
    },
    Recorded(Recorded),
}

impl Link {
    pub fn new(direction: &Direction) -> Self {
        let server = match (&direction.trace, direction.rate_bps) {
            (Some(trace), _) => Server::Recorded(Recorded::new(trace.clone())),
            (None, Some(rate_bps)) => Server::Rate {
                rate_bps,
                busy_until: None,
            },
            (None, None) => Server::Unlimited,
        };
        let waiting = match server {
            Server::Unlimited => 0,
            _ => direction.queue_packets,
        };
        Self {
            server,
            queue_packets: direction.queue_packets,
            starts: VecDeque::with_capacity(waiting),
        }
    }

    /// Starts a recorded link, unless it runs already.
    pub fn start(&mut self, now: Instant) {
        if let Server::Recorded(recorded) = &mut self.server {
            recorded.started.get_or_insert(now);
        }
    }

    /// Returns whether no packet waits.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.starts.back().is_none_or(|start| *start <= now)
    }

    /// Returns the transmission of a packet that arrives `now`, or `None` if the queue is full.
    pub fn serve(&mut self, now: Instant, frame_bytes: usize) -> Option<Transmission> {
        if matches!(self.server, Server::Unlimited) {
            return Some(Transmission {
                start: now,
                departure: now,
            });
        }
        while self.starts.front().is_some_and(|start| *start <= now) {
            self.starts.pop_front();
        }
        if self.starts.len() >= self.queue_packets {
            return None;
        }
        let transmission = self.server.transmit(now, frame_bytes);
        if transmission.start > now {
            self.starts.push_back(transmission.start);
        }
        Some(transmission)
    }
}

impl Server {
    fn transmit(&mut self, now: Instant, frame_bytes: usize) -> Transmission {
        match self {
            Self::Unlimited => Transmission {
                start: now,
                departure: now,
            },
            Self::Rate {
                rate_bps,
                busy_until,
            } => {
                let start = busy_until.map_or(now, |busy_until| busy_until.max(now));
                let departure = start + serialisation(frame_bytes, *rate_bps);
                *busy_until = Some(departure);
                Transmission { start, departure }
            }
            Self::Recorded(recorded) => recorded.transmit(now, frame_bytes),
        }
    }
}

fn serialisation(bytes: usize, rate_bps: u64) -> Duration {
    Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate_bps)
}

/// Bytes of an Ethernet header, which a recorded link does not count.
const ETHERNET: usize = 14;

/// A recorded link, as in mahimahi (`src/frontend/link_queue.cc`): an opportunity serves the packets
/// that arrived before it. Several packets share one. A packet that exceeds the rest of an
/// opportunity departs with the next. Unused bytes are lost.
struct Recorded {
    trace: LinkTrace,
    /// Start of the trace; `None` before the first packet.
    started: Option<Instant>,
    /// Number of the next unused opportunity.
    next: u64,
    /// Bytes left in the opportunity before `next`.
    rest: usize,
}

impl Recorded {
    fn new(trace: LinkTrace) -> Self {
        Self {
            trace,
            started: None,
            next: 0,
            rest: 0,
        }
    }

    fn transmit(&mut self, now: Instant, frame_bytes: usize) -> Transmission {
        let started = *self.started.get_or_insert(now);
        let usable = self.trace.first_after(now - started);
        if self.next <= usable {
            self.next = usable;
            self.rest = 0;
        }
        let mut bytes = frame_bytes.saturating_sub(ETHERNET).max(1);
        let mut start = None;
        loop {
            if self.rest == 0 {
                self.next += 1;
                self.rest = OPPORTUNITY_BYTES;
            }
            let at = started + self.trace.opportunity(self.next - 1);
            let start = *start.get_or_insert(at);
            let served = bytes.min(self.rest);
            self.rest -= served;
            bytes -= served;
            if bytes == 0 {
                return Transmission {
                    start,
                    departure: at,
                };
            }
        }
    }
}

// The frames inside one direction, ordered by due time.

const MAX_PACKETS: usize = 65_536;
const MAX_BYTES: usize = 16 << 20;

/// Due time, sequence number, due time without jitter, and the frame. Sequence numbers are unique,
/// so the fields after them are never compared.
type QueuedFrame = (Instant, u64, Instant, Box<[u8]>);

/// Frames ordered by due time; frames with equal due times stay in order of arrival.
#[derive(Default)]
pub(crate) struct DelayLine {
    frames: BinaryHeap<Reverse<QueuedFrame>>,
    next_number: u64,
    bytes: usize,
}

impl DelayLine {
    /// Returns true if there is room for `frames` frames of this size.
    pub fn has_room(&self, frames: usize, frame_bytes: usize) -> bool {
        let packets = self.frames.len() + frames;
        packets <= MAX_PACKETS && self.bytes + frames * frame_bytes <= MAX_BYTES
    }

    /// Adds a frame; [`has_room`](Self::has_room) must be true.
    pub fn push(&mut self, DueTime { at, without_jitter }: DueTime, frame: &[u8]) {
        let numbered = (at, self.next_number, without_jitter, frame.into());
        self.frames.push(Reverse(numbered));
        self.next_number += 1;
        self.bytes += frame.len();
    }

    /// Returns the due time of the next frame.
    pub fn due(&self) -> Option<Instant> {
        self.frames.peek().map(|Reverse((due, ..))| *due)
    }

    /// Removes the next frame if it is due by `now`, and returns it with its due time.
    pub fn pop(&mut self, now: Instant) -> Option<(DueTime, Box<[u8]>)> {
        self.due().filter(|due| *due <= now)?;
        let Reverse((at, _, without_jitter, frame)) = self.frames.pop()?;
        self.bytes -= frame.len();
        Some((DueTime { at, without_jitter }, frame))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(rate_bps: Option<u64>, queue_packets: usize) -> Link {
        Link::new(&Direction {
            rate_bps,
            queue_packets,
            ..Direction::delayed(Duration::ZERO)
        })
    }

    fn recorded(trace: &str, queue_packets: usize) -> Link {
        Link::new(&Direction {
            trace: Some(trace.parse().unwrap()),
            queue_packets,
            ..Direction::delayed(Duration::ZERO)
        })
    }

    /// Returns the departure of a packet with this number of IP bytes.
    fn departure(link: &mut Link, now: Instant, ip_bytes: usize) -> Option<Instant> {
        let transmission = link.serve(now, ip_bytes + ETHERNET)?;
        Some(transmission.departure)
    }

    #[test]
    fn recorded_link_waits_for_its_next_opportunity() {
        let now = Instant::now();
        let mut link = recorded("list:0,5,5", 10);
        // An opportunity at the time of arrival has passed, as in mahimahi.
        assert_eq!(departure(&mut link, now, 1500), Some(now + 5 * MS));
        assert_eq!(departure(&mut link, now, 1500), Some(now + 10 * MS));
        // The trace repeats: its opportunity at 0 ms is the one at 10 ms again.
        assert_eq!(departure(&mut link, now, 1500), Some(now + 10 * MS));
        assert_eq!(departure(&mut link, now, 1500), Some(now + 15 * MS));
        let later = now + 103 * MS;
        assert_eq!(departure(&mut link, later, 1500), Some(later + 2 * MS));
    }

    #[test]
    fn packets_share_an_opportunity_and_continue_in_the_next() {
        let now = Instant::now();
        let mut link = recorded("list:5", 10);
        assert_eq!(departure(&mut link, now, 700), Some(now + 5 * MS));
        assert_eq!(departure(&mut link, now, 700), Some(now + 5 * MS));
        assert_eq!(departure(&mut link, now, 700), Some(now + 10 * MS));
        assert_eq!(departure(&mut link, now, 4000), Some(now + 25 * MS));
        assert_eq!(departure(&mut link, now, 1400), Some(now + 25 * MS));
        assert_eq!(departure(&mut link, now, 1), Some(now + 30 * MS));
    }

    #[test]
    fn late_packet_gets_no_rest_of_an_opportunity() {
        let now = Instant::now();
        let mut link = recorded("list:5", 10);
        assert_eq!(departure(&mut link, now, 100), Some(now + 5 * MS));
        let same = now + 5 * MS;
        assert_eq!(departure(&mut link, same, 100), Some(now + 10 * MS));
    }

    #[test]
    fn several_opportunities_at_one_time_are_all_used() {
        let now = Instant::now();
        let mut link = recorded("list:5x3", 10);
        let out = [0; 4].map(|_| departure(&mut link, now, 1500).unwrap() - now);
        assert_eq!(out, [5 * MS, 5 * MS, 5 * MS, 10 * MS]);
    }

    #[test]
    fn queue_of_recorded_link_is_limited_during_outage() {
        let now = Instant::now();
        let mut link = recorded("list:1000", 2);
        assert!(departure(&mut link, now, 100).is_some());
        assert!(departure(&mut link, now, 100).is_some());
        assert_eq!(departure(&mut link, now + 999 * MS, 100), None);
        assert!(!link.is_idle(now + 999 * MS) && link.is_idle(now + 1000 * MS));
        let after = now + 1000 * MS;
        assert_eq!(departure(&mut link, after, 100), Some(now + 2000 * MS));
    }

    #[test]
    fn trace_starts_with_its_path() {
        let now = Instant::now();
        let mut link = recorded("list:5", 10);
        link.start(now);
        link.start(now + MS);
        assert_eq!(departure(&mut link, now + 3 * MS, 1), Some(now + 5 * MS));
    }

    #[test]
    fn idle_link_takes_serialisation_time() {
        let now = Instant::now();
        let mut link = link(Some(1_000_000), 1);
        assert_eq!(departs(&mut link, now, 1250), Some(now + 10 * MS));
        let later = now + 50 * MS;
        assert_eq!(departs(&mut link, later, 125), Some(later + MS));
    }

    fn departs(link: &mut Link, now: Instant, frame_bytes: usize) -> Option<Instant> {
        link.serve(now, frame_bytes).map(|it| it.departure)
    }

    #[test]
    fn busy_link_serves_in_order_without_gaps() {
        let now = Instant::now();
        let mut link = link(Some(1_000_000), 10);
        assert_eq!(departs(&mut link, now, 125), Some(now + MS));
        assert_eq!(departs(&mut link, now, 250), Some(now + 3 * MS));
        assert_eq!(departs(&mut link, now + MS, 125), Some(now + 4 * MS));
    }

    #[test]
    fn full_queue_excludes_packet_in_service() {
        let now = Instant::now();
        let mut link = link(Some(1_000_000), 2);
        for _ in 0..3 {
            assert!(departs(&mut link, now, 125).is_some());
        }
        assert_eq!(departs(&mut link, now, 125), None);
        // The second packet is sent once the first has left: one slot is free.
        assert_eq!(departs(&mut link, now + MS, 125), Some(now + 4 * MS));
        assert_eq!(departs(&mut link, now + MS, 125), None);
    }

    #[test]
    fn unlimited_link_never_queues() {
        let now = Instant::now();
        let mut link = link(None, 1);
        for _ in 0..100 {
            assert_eq!(departs(&mut link, now, 1514), Some(now));
        }
    }

    fn without_jitter(at: Instant) -> DueTime {
        DueTime {
            at,
            without_jitter: at,
        }
    }

    #[test]
    fn frames_leave_by_due_time_then_arrival_order() {
        let now = Instant::now();
        let later = now + Duration::from_millis(1);
        let mut line = DelayLine::default();
        for (due, frame) in [(later, b"3"), (now, b"1"), (later, b"4"), (now, b"2")] {
            line.push(without_jitter(due), frame);
        }
        let mut out = |by| {
            let frames = std::iter::from_fn(|| line.pop(by));
            frames.flat_map(|(_, frame)| frame).collect::<Vec<u8>>()
        };
        assert_eq!(out(now), b"12");
        assert_eq!(out(later), b"34");
    }

    #[test]
    fn delay_line_is_limited_in_packets_and_bytes() {
        let now = Instant::now();
        let mut line = DelayLine::default();
        (0..MAX_PACKETS - 1).for_each(|_| line.push(without_jitter(now), &[0; 60]));
        assert!(line.has_room(1, 60) && !line.has_room(2, 60));
        line.push(without_jitter(now), &[0; 60]);
        assert!(!line.has_room(1, 60));
        line.pop(now);
        assert!(line.has_room(1, 60));

        let mut line = DelayLine::default();
        (0..255).for_each(|_| line.push(without_jitter(now), &[0; 65_536]));
        assert!(line.has_room(2, 32_768) && !line.has_room(2, 32_769));
    }
}
