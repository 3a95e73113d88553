//! The run of one thread's streams: messages as they fall due, then the end.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::report::Work;
use super::source::Next;
use super::stream::Stream;
use crate::traffic::latency::{now_ns, ns};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError};

/// Messages handed over between two looks at the sockets when the sender is behind its schedule.
const BATCH: usize = 256;

/// All streams of a thread at work.
pub(super) struct Pace<'a> {
    pub(super) streams: Vec<Stream<'a>>,
    pub(super) poller: Poller,
    pub(super) work: Work,
    /// When the barrier opened.
    pub(super) start_ns: u64,
    pub(super) progress: &'a AtomicU64,
    /// The next message of each stream, the earliest on top: when it is due in nanoseconds since
    /// the barrier opened, and its stream.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// The streams that are yet to start with others.
    awaiting: Vec<usize>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(
        streams: Vec<Stream<'a>>,
        poller: Poller,
        work: Work,
        start_ns: u64,
        progress: &'a AtomicU64,
    ) -> Self {
        let awaits = |(_, stream): &(usize, &Stream)| !stream.has_started();
        let awaiting = streams.iter().enumerate().filter(awaits);
        Self {
            awaiting: awaiting.map(|(index, _)| index).collect(),
            due: BinaryHeap::with_capacity(streams.len()),
            streams,
            poller,
            work,
            start_ns,
            progress,
        }
    }

    /// Hands over every message when it is due, until `end` after the barrier has opened, or `stop` is set, or
    /// nothing is left to do. Then waits for what is still on its way and for the receiver's
    /// closes, `drain_timeout` in all.
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
                // A message that was due before the end is late, and still sent.
                let over = |stream: &&mut Stream| stopped || !stream.scheduled;
                let streams = self.streams.iter_mut().filter(over);
                streams.for_each(|stream| stream.finish(&mut self.work));
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
            let end_to_come = if now < end { end } else { u64::MAX };
            let next = next.min(end_to_come).min(self.next_start(now));
            self.poll(next.min(deadline).min(now + STOP_CHECK_NS))?;
        }
    }

    /// Hands over the messages that are due by now, in order, but no more than [`BATCH`]. Returns
    /// the time that it went by last: the clock is read once a message, for a reading can cost as
    /// much as the rest (in the lab's kernel).
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
                        self.work.measured.late_ns.saturating_record(late);
                    }
                    stream.hand_over(now, &mut self.work);
                    self.progress.fetch_add(1, Ordering::Relaxed);
                }
                self.schedule(index, now);
            }
        }
        now
    }

    /// Starts the streams that are connected, where none of their group is waited for any more.
    fn start_together(&mut self, now: u64) {
        let since = now.saturating_sub(self.start_ns);
        let streams = self.awaiting.iter().map(|index| &self.streams[*index]);
        let awaited = streams.filter(|it| it.awaited_until().is_some_and(|latest| since < latest));
        let awaited: BTreeSet<usize> = awaited.map(Stream::group).collect();
        for index in std::mem::take(&mut self.awaiting) {
            let stream = &mut self.streams[index];
            if !awaited.contains(&stream.group()) && stream.start(since) {
                self.schedule(index, now);
            } else if stream.is_open() {
                self.awaiting.push(index);
            }
        }
    }

    /// When streams start next though others are not connected.
    fn next_start(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.start_ns);
        let streams = self.awaiting.iter().map(|index| &self.streams[*index]);
        let latest = streams.filter_map(Stream::awaited_until);
        let next = latest.filter(|latest| *latest > since).min();
        next.map_or(u64::MAX, |latest| self.start_ns.saturating_add(latest))
    }

    /// Puts a stream's next message among those due, if it is known when.
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
            Next::Over => stream.finish(&mut self.work),
        }
    }

    fn poll(&mut self, deadline_ns: u64) -> Result<(), SystemError> {
        let mut ready = std::mem::take(&mut self.work.ready);
        ready.extend(self.poller.wait_until(deadline_ns)?.map(|(index, _)| index));
        for index in ready.drain(..) {
            let now = now_ns();
            self.streams[index].ready(&mut self.work, self.start_ns);
            if !self.streams[index].scheduled {
                self.schedule(index, now);
            }
        }
        self.work.ready = ready;
        Ok(())
    }
}
