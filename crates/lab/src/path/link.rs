//! The link: a rate, and the FIFO in front of it.

use std::{collections::VecDeque, time::Duration, time::Instant};

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

#[cfg(test)]
mod tests {
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
}
