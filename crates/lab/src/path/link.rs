//! The link: a rate, and the FIFO in front of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::path::delay::Due;

/// Serves packets one after the other at a rate.
///
/// The service time of a packet is known when it arrives, and so is its departure: only the
/// occupancy of the queue has to be kept.
pub(crate) struct Link {
    rate_bps: Option<u64>,
    queue_packets: usize,
    /// When the service of each waiting packet starts.
    starts: VecDeque<Instant>,
    /// When the link has sent all that it accepted.
    free: Option<Instant>,
}

impl Link {
    pub fn new(rate_bps: Option<u64>, queue_packets: usize) -> Self {
        let waiting = rate_bps.map_or(0, |_| queue_packets);
        Self {
            rate_bps,
            queue_packets,
            starts: VecDeque::with_capacity(waiting),
            free: None,
        }
    }

    /// The moment a packet that arrives `now` has left the link, or `None` when the queue is full.
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
        let start = self.free.map_or(now, |free| free.max(now));
        if start > now {
            self.starts.push_back(start);
        }
        let departure = start + serialisation(bytes, rate_bps);
        self.free = Some(departure);
        Some(departure)
    }
}

fn serialisation(bytes: usize, rate_bps: u64) -> Duration {
    Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate_bps)
}

// The frames inside one direction, those due first before all others.

const MAX_PACKETS: usize = 65_536;
const MAX_BYTES: usize = 16 << 20;

/// When a frame is due, its number, when it would be due if delays did not vary, and itself. Numbers
/// differ, so that what follows them is never compared.
type Numbered = (Instant, u64, Instant, Box<[u8]>);

/// Frames by the times when they are due; those due at the same time in the order in which they
/// came.
#[derive(Default)]
pub(crate) struct DelayLine {
    frames: BinaryHeap<Reverse<Numbered>>,
    taken: u64,
    bytes: usize,
}

impl DelayLine {
    /// True if the delay line may take in so many frames of this size.
    pub fn has_room(&self, frames: usize, frame_bytes: usize) -> bool {
        let packets = self.frames.len() + frames;
        packets <= MAX_PACKETS && self.bytes + frames * frame_bytes <= MAX_BYTES
    }

    /// Takes in a frame that [has room](Self::has_room).
    pub fn push(&mut self, Due { at, steady }: Due, frame: &[u8]) {
        let numbered = (at, self.taken, steady, frame.into());
        self.frames.push(Reverse(numbered));
        self.taken += 1;
        self.bytes += frame.len();
    }

    /// When the next frame is due.
    pub fn due(&self) -> Option<Instant> {
        self.frames.peek().map(|Reverse((due, ..))| *due)
    }

    /// Hands out the next frame if it is due by `now`, with the time when it was due.
    pub fn pop(&mut self, now: Instant) -> Option<(Due, Box<[u8]>)> {
        self.due().filter(|due| *due <= now)?;
        let Reverse((at, _, steady, frame)) = self.frames.pop()?;
        self.bytes -= frame.len();
        Some((Due { at, steady }, frame))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_idle_link_takes_the_serialisation_time() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 1);
        assert_eq!(link.serve(now, 1250), Some(now + 10 * MS));
        let later = now + 50 * MS;
        assert_eq!(link.serve(later, 125), Some(later + MS));
    }

    #[test]
    fn a_busy_link_serves_in_order_and_back_to_back() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 10);
        assert_eq!(link.serve(now, 125), Some(now + MS));
        assert_eq!(link.serve(now, 250), Some(now + 3 * MS));
        assert_eq!(link.serve(now + MS, 125), Some(now + 4 * MS));
    }

    #[test]
    fn one_packet_is_served_while_the_queue_holds_its_limit() {
        let now = Instant::now();
        let mut link = Link::new(Some(1_000_000), 2);
        for _ in 0..3 {
            assert!(link.serve(now, 125).is_some());
        }
        assert_eq!(link.serve(now, 125), None);
        // The second packet enters service when the first has left: one place is free.
        assert_eq!(link.serve(now + MS, 125), Some(now + 4 * MS));
        assert_eq!(link.serve(now + MS, 125), None);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let now = Instant::now();
        let mut link = Link::new(None, 1);
        for _ in 0..100 {
            assert_eq!(link.serve(now, 1514), Some(now));
        }
    }

    fn steady(at: Instant) -> Due {
        Due { at, steady: at }
    }

    #[test]
    fn frames_come_out_when_due_and_otherwise_in_the_order_in_which_they_came() {
        let now = Instant::now();
        let later = now + Duration::from_millis(1);
        let mut line = DelayLine::default();
        for (due, frame) in [(later, b"3"), (now, b"1"), (later, b"4"), (now, b"2")] {
            line.push(steady(due), frame);
        }
        let mut out = |by| {
            let frames = std::iter::from_fn(|| line.pop(by));
            frames.flat_map(|(_, frame)| frame).collect::<Vec<u8>>()
        };
        assert_eq!(out(now), b"12");
        assert_eq!(out(later), b"34");
    }

    #[test]
    fn room_is_limited_in_packets_and_in_bytes() {
        let now = Instant::now();
        let mut line = DelayLine::default();
        (0..MAX_PACKETS - 1).for_each(|_| line.push(steady(now), &[0; 60]));
        assert!(line.has_room(1, 60) && !line.has_room(2, 60));
        line.push(steady(now), &[0; 60]);
        assert!(!line.has_room(1, 60));
        line.pop(now);
        assert!(line.has_room(1, 60));

        let mut line = DelayLine::default();
        (0..255).for_each(|_| line.push(steady(now), &[0; 65_536]));
        assert!(line.has_room(2, 32_768) && !line.has_room(2, 32_769));
    }
}
