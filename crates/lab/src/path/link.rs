//! The link: a rate, and the FIFO before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::path::delay::DueTime;

/// Transmits packets one after the other at a rate.
///
/// A packet's transmission time, and therefore its departure, is known at its arrival. So only the
/// queue's occupancy is stored.
pub(crate) struct Link {
    rate_bps: Option<u64>,
    queue_packets: usize,
    /// Start of transmission of each waiting packet.
    starts: VecDeque<Instant>,
    /// Time until which the link is busy.
    busy_until: Option<Instant>,
}

impl Link {
    pub fn new(rate_bps: Option<u64>, queue_packets: usize) -> Self {
        let waiting = rate_bps.map_or(0, |_| queue_packets);
        Self {
            rate_bps,
            queue_packets,
            starts: VecDeque::with_capacity(waiting),
            busy_until: None,
        }
    }

    /// Returns the departure of a packet that arrives `now`, or `None` if the queue is full.
    pub fn serve(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate_bps) = self.rate_bps else {
            return Some(now);
        };
        while self.starts.front().is_some_and(|start| *start <= now) {
            self.starts.pop_front();
        }
        if self.starts.len() >= self.queue_packets {
            return None;
        }
        let start = self
            .busy_until
            .map_or(now, |busy_until| busy_until.max(now));
        if start > now {
            self.starts.push_back(start);
        }
        let departure = start + serialisation(bytes, rate_bps);
        self.busy_until = Some(departure);
        Some(departure)
    }
}

fn serialisation(bytes: usize, rate_bps: u64) -> Duration {
    Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate_bps)
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

    #[test]
    fn idle_link_takes_serialisation_time() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 1);
        assert_eq!(link.serve(now, 1250), Some(now + 10 * MS));
        let later = now + 50 * MS;
        assert_eq!(link.serve(later, 125), Some(later + MS));
    }

    #[test]
    fn busy_link_serves_in_order_without_gaps() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 10);
        assert_eq!(link.serve(now, 125), Some(now + MS));
        assert_eq!(link.serve(now, 250), Some(now + 3 * MS));
        assert_eq!(link.serve(now + MS, 125), Some(now + 4 * MS));
    }

    #[test]
    fn full_queue_excludes_packet_in_service() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 2);
        for _ in 0..3 {
            assert!(link.serve(now, 125).is_some());
        }
        assert_eq!(link.serve(now, 125), None);
        // The second packet is sent once the first has left: one slot is free.
        assert_eq!(link.serve(now + MS, 125), Some(now + 4 * MS));
        assert_eq!(link.serve(now + MS, 125), None);
    }

    #[test]
    fn unlimited_link_never_queues() {
        let now = Instant::now();
        let mut link = Link::new(None, 1);
        for _ in 0..100 {
            assert_eq!(link.serve(now, 1514), Some(now));
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
