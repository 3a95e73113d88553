//! The frames inside one direction, oldest first, in memory of a fixed size.

use std::{collections::VecDeque, time::Instant};

const MAX_PACKETS: usize = 65_536;
const MAX_BYTES: usize = 16 << 20;

/// Frames in the order of their due times. As the first in is the first out, one ring of bytes
/// holds them all, and nothing is allocated for a frame.
pub(crate) struct Flight {
    due: VecDeque<(Instant, usize)>,
    bytes: VecDeque<u8>,
}

impl Flight {
    pub fn new() -> Self {
        Self {
            due: VecDeque::with_capacity(MAX_PACKETS),
            bytes: VecDeque::with_capacity(MAX_BYTES),
        }
    }

    pub fn has_room(&self, frame_bytes: usize) -> bool {
        self.due.len() < MAX_PACKETS && self.bytes.len() + frame_bytes <= MAX_BYTES
    }

    /// Takes in a frame that [has room](Self::has_room), due no earlier than the one before.
    pub fn push(&mut self, due: Instant, frame: &[u8]) {
        self.due.push_back((due, frame.len()));
        self.bytes.extend(frame);
    }

    /// When the oldest frame is due, and its size in bytes.
    pub fn next(&self) -> Option<(Instant, usize)> {
        self.due.front().copied()
    }

    /// The first `frame_bytes` bytes, in two parts where the ring wraps.
    pub fn front(&self, frame_bytes: usize) -> [&[u8]; 2] {
        let (head, tail) = self.bytes.as_slices();
        match head.get(..frame_bytes) {
            Some(whole) => [whole, &[]],
            None => [head, &tail[..frame_bytes - head.len()]],
        }
    }

    /// Forgets the oldest frame.
    pub fn pop(&mut self) {
        if let Some((_, frame_bytes)) = self.due.pop_front() {
            self.bytes.drain(..frame_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_intact_across_the_wrap_of_the_ring() {
        let now = Instant::now();
        let mut flight = Flight::new();
        let frame = |n: u32| vec![n.to_le_bytes()[0]; 60_000 + n as usize];
        // 250 frames inside; 1000 in all turn the ring over more than three times.
        for n in 0..1000 {
            assert!(flight.has_room(frame(n).len()));
            flight.push(now, &frame(n));
            if let Some(oldest) = n.checked_sub(250) {
                let (_, bytes) = flight.next().unwrap();
                assert!(flight.front(bytes).concat() == frame(oldest));
                flight.pop();
            }
        }
    }

    #[test]
    fn room_is_limited_in_packets_and_in_bytes() {
        let now = Instant::now();
        let mut flight = Flight::new();
        (0..MAX_PACKETS).for_each(|_| flight.push(now, &[0; 60]));
        assert!(!flight.has_room(60));
        flight.pop();
        assert!(flight.has_room(60));

        let mut flight = Flight::new();
        (0..256).for_each(|_| flight.push(now, &[0; 65_536]));
        assert!(!flight.has_room(1));
    }
}
