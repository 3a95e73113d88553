//! The send loop of one thread: messages when they are due, then the end.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::report::ThreadState;
use super::source::Next;
use super::stream::Stream;
use crate::traffic::latency::{now_ns, ns};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError};

/// Maximum messages between two polls of the sockets when the sender is behind schedule.
const BATCH: usize = 256;

/// The streams of a thread, and their schedule.
pub(super) struct SendLoop<'a> {
    pub(super) streams: Vec<Stream<'a>>,
    pub(super) poller: Poller,
    pub(super) state: ThreadState,
    /// When the barrier opened.
    pub(super) start_ns: u64,
    pub(super) progress: &'a AtomicU64,
    /// The next message of each stream, the earliest on top: due time in nanoseconds since the
    /// barrier's opening, and the stream.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Streams that start together with others but have not started.
    waiting: Vec<usize>,
}

impl<'a> SendLoop<'a> {
    pub(super) fn new(
        streams: Vec<Stream<'a>>,
        poller: Poller,
        state: ThreadState,
        start_ns: u64,
        progress: &'a AtomicU64,
    ) -> Self {
        let is_waiting = |(_, stream): &(usize, &Stream)| !stream.has_started();
        let waiting = streams.iter().enumerate().filter(is_waiting);
        Self {
            waiting: waiting.map(|(index, _)| index).collect(),
            due: BinaryHeap::with_capacity(streams.len()),
            streams,
            poller,
            state,
            start_ns,
            progress,
        }
    }

    /// Writes every message when it is due, until `end` after the barrier's opening, or `stop` is
    /// set, or all streams are done. Then waits for queued data and for the receiver's closes, at
    /// most `drain_timeout`.
    pub(super) fn run(
        &mut self,
        end: Option<Duration>,
        drain_timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<(), SystemError> {
        let end = end.map_or(u64::MAX, |end| self.start_ns.saturating_add(ns(end)));
        let mut deadline = u64::MAX;
        let now = now_ns();
        for index in 0..self.streams.len() {
            self.schedule(index, now);
        }
        loop {
            let now = self.hand_over();
            self.start_together(now);
            let stopped = stop.load(Ordering::Relaxed);
            if stopped {
                self.due.clear();
            }
            if stopped || now >= end {
                // A message due before the end is still sent, although late.
                let over = |stream: &&mut Stream| stopped || !stream.scheduled;
                let streams = self.streams.iter_mut().filter(over);
                streams.for_each(|stream| stream.finish(&mut self.state));
            }
            if deadline == u64::MAX && !self.streams.iter().any(Stream::is_active) {
                deadline = now.saturating_add(ns(drain_timeout));
            }
            if now >= deadline || !self.streams.iter().any(Stream::is_open) {
                return Ok(());
            }
            let next = self.due.peek().map_or(u64::MAX, |&Reverse((offset, _))| {
                self.start_ns.saturating_add(offset)
            });
            let next_stop = if now < end { end } else { u64::MAX };
            let next = next.min(next_stop).min(self.next_start(now));
            self.poll(next.min(deadline).min(now + STOP_CHECK_NS))?;
        }
    }

    /// Writes the messages due by now, in order, but at most [`BATCH`]. Returns the last clock
    /// reading. The clock is read once per message, because a reading can cost as much as
    /// everything else (in the lab's kernel).
    fn hand_over(&mut self) -> u64 {
        let mut now = now_ns();
        for done in 0..BATCH {
            let Some(&Reverse((offset, index))) = self.due.peek() else {
                break;
            };
            let due = self.start_ns.saturating_add(offset);
            if due > now {
                break;
            }
            if done > 0 {
                now = now_ns();
            }
            let late = now.saturating_sub(due);
            self.due.pop();
            let stream = &mut self.streams[index];
            stream.scheduled = false;
            if stream.is_active() {
                stream.open(&self.poller, index, now);
                if stream.has_started() {
                    if stream.source.can_be_late() {
                        self.state.measured.late_ns.saturating_record(late);
                    }
                    stream.hand_over(now, &mut self.state);
                    self.progress.fetch_add(1, Ordering::Relaxed);
                }
                self.schedule(index, now);
            }
        }
        now
    }

    /// Starts connected streams whose group does not wait for others any longer.
    fn start_together(&mut self, now: u64) {
        let since = now.saturating_sub(self.start_ns);
        let streams = self.waiting.iter().map(|index| &self.streams[*index]);
        let waiting_groups =
            streams.filter(|it| it.wait_deadline().is_some_and(|latest| since < latest));
        let waiting_groups: BTreeSet<usize> = waiting_groups.map(Stream::group).collect();
        for index in std::mem::take(&mut self.waiting) {
            let stream = &mut self.streams[index];
            if !waiting_groups.contains(&stream.group()) && stream.start(since) {
                self.schedule(index, now);
            } else if stream.is_open() {
                self.waiting.push(index);
            }
        }
    }

    /// Returns when streams start next although others are not connected.
    fn next_start(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.start_ns);
        let streams = self.waiting.iter().map(|index| &self.streams[*index]);
        let latest = streams.filter_map(Stream::wait_deadline);
        let next = latest.filter(|latest| *latest > since).min();
        next.map_or(u64::MAX, |latest| self.start_ns.saturating_add(latest))
    }

    /// Schedules a stream's next message if its time is known.
    fn schedule(&mut self, index: usize, now: u64) {
        let stream = &mut self.streams[index];
        if stream.scheduled || !stream.is_active() {
            return;
        }
        let now = now.saturating_sub(self.start_ns);
        match stream.next(now) {
            Next::At(offset) => {
                stream.scheduled = true;
                self.due.push(Reverse((offset, index)));
            }
            Next::Waiting => {}
            Next::Over => stream.finish(&mut self.state),
        }
    }

    fn poll(&mut self, deadline_ns: u64) -> Result<(), SystemError> {
        let mut ready = std::mem::take(&mut self.state.ready);
        ready.extend(self.poller.wait_until(deadline_ns)?.map(|(index, _)| index));
        for index in ready.drain(..) {
            let now = now_ns();
            self.streams[index].ready(&mut self.state, self.start_ns);
            if !self.streams[index].scheduled {
                self.schedule(index, now);
            }
        }
        self.state.ready = ready;
        Ok(())
    }
}
