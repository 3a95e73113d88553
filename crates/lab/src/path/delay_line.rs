//! The frames inside one direction, those due first before all others.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

use crate::path::delays::Due;

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
