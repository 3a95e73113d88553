//! The run of all streams on one thread: messages as they fall due, then the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::SendError;
use super::connect::STOP_CHECK_NS;
use super::poller::Poller;
use super::stream::Stream;
use crate::clock::{now_ns, ns};
use crate::quantiles::histogram;

/// Messages handed over between two looks at the sockets when the sender is behind its schedule.
const BATCH: usize = 256;

/// The next message of each stream, the earliest on top: when it is due in nanoseconds since the
/// barrier opened, and its stream.
type Due = BinaryHeap<Reverse<(u64, usize)>>;

/// All streams at work.
pub(super) struct Pace<'a> {
    pub(super) streams: &'a mut [Stream],
    pub(super) poller: &'a mut Poller,
    pub(super) scratch: Vec<u8>,
    pub(super) progress: &'a AtomicU64,
}

impl Pace<'_> {
    /// Opens the barrier and hands over every message when it is due, until `duration` is over, or
    /// `stop` is set, or no stream is left. Returns the distribution of lateness in nanoseconds.
    pub(super) fn send(
        &mut self,
        duration: Duration,
        stop: &AtomicBool,
    ) -> Result<Histogram<u64>, SendError> {
        let mut late_ns = histogram();
        let start = now_ns();
        let end = start.saturating_add(ns(duration));
        let mut due: Due = (0..self.streams.len())
            .filter_map(|index| Some(Reverse((self.streams[index].schedule.next()?, index))))
            .collect();
        while !stop.load(Ordering::Relaxed) && self.streams.iter().any(Stream::is_open) {
            self.hand_over(&mut due, start, &mut late_ns);
            let now = now_ns();
            let wake = match due.peek() {
                Some(&Reverse((offset, _))) => start + offset,
                None if now >= end => break,
                None => end,
            };
            self.poll(wake.min(now + STOP_CHECK_NS))?;
        }
        Ok(late_ns)
    }

    /// Hands over the messages that are due by now, in order, but no more than [`BATCH`].
    fn hand_over(&mut self, due: &mut Due, start: u64, late_ns: &mut Histogram<u64>) {
        for _ in 0..BATCH {
            let Some(mut first) = due.peek_mut() else {
                return;
            };
            let Reverse((offset, index)) = *first;
            let now = now_ns();
            let Some(late) = now.checked_sub(start + offset) else {
                return;
            };
            let stream = &mut self.streams[index];
            if stream.is_open() {
                late_ns.saturating_record(late);
                stream.hand_over(now, &mut self.scratch);
                self.progress.fetch_add(1, Ordering::Relaxed);
            }
            match stream.schedule.next().filter(|_| stream.is_open()) {
                Some(offset) => *first = Reverse((offset, index)),
                None => drop(PeekMut::pop(first)),
            }
        }
    }

    /// Half-closes every stream once all it has is with the kernel, and waits for the receiver's
    /// closes, `timeout` in all.
    pub(super) fn drain(&mut self, timeout: Duration) -> Result<(), SendError> {
        let deadline = now_ns().saturating_add(ns(timeout));
        self.streams
            .iter_mut()
            .filter(|stream| stream.is_open())
            .for_each(Stream::finish);
        while self.streams.iter().any(Stream::is_open) && now_ns() < deadline {
            self.poll(deadline)?;
        }
        Ok(())
    }

    fn poll(&mut self, deadline_ns: u64) -> Result<(), SendError> {
        for index in self.poller.wait_until(deadline_ns)? {
            self.streams[index].ready(&mut self.scratch);
        }
        Ok(())
    }
}
