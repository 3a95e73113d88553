//! A path that drops large packets does not stop a stream. The tests take minutes of virtual time,
//! inside the lab kernel.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pillion_tests::{Setup, Wire, limit_one};

use crate::common::{needs_kernel, run_tests_inside};

#[test]
fn bundles_fit_path_that_drops_large_packets() {
    needs_kernel!();
    run_tests_inside("path_size::inside::");
}

const MESSAGE: u32 = 400;
const ITT: Duration = Duration::from_millis(80);
const RTT: Duration = Duration::from_millis(100);

/// A simulated path: an application that writes messages, and a receiver that acknowledges every
/// segment that the path delivers.
struct Path {
    max_segment: u32,
    /// Segments larger than `max_segment`, which the path dropped.
    oversized: u32,
    /// Start and end of an outage, in which the path drops every segment.
    outage: Option<(Instant, Instant)>,
    message: u32,
    itt: Duration,
    /// Next sequence number that the receiver expects.
    received: u32,
    /// Ranges received after a gap.
    out_of_order: Vec<(u32, u32)>,
    sent: u32,
    next_write: Instant,
    acks: VecDeque<(Instant, u32, String)>,
}

impl Path {
    fn new(max_segment: u32) -> Self {
        Self {
            max_segment,
            oversized: 0,
            outage: None,
            message: MESSAGE,
            itt: ITT,
            received: 1,
            out_of_order: Vec::new(),
            sent: 0,
            next_write: Instant::now(),
            acks: VecDeque::new(),
        }
    }

    /// Sends messages for `time` and waits until all have arrived. Returns the elapsed time.
    fn transfer(&mut self, wire: &mut Wire, time: Duration) -> Duration {
        let started = Instant::now();
        loop {
            let is_writing = started.elapsed() < time;
            assert!(
                started.elapsed() < 2 * time,
                "{} bytes received",
                self.received
            );
            if !is_writing && self.received == 1 + self.message * self.sent {
                return started.elapsed();
            }
            if is_writing && Instant::now() >= self.next_write {
                wire.write(self.message);
                self.sent += 1;
                self.next_write += self.itt;
            }
            let now = Instant::now();
            if self.acks.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, number, block) = self.acks.pop_front().unwrap();
                wire.ack_without_waiting(number, &block);
            }
            let mut due = self.acks.front().map_or(now + RTT, |(at, ..)| *at);
            if is_writing {
                due = due.min(self.next_write);
            }
            let wait = due.saturating_duration_since(Instant::now());
            if let Some((start, end)) = wire.read_within(wait) {
                self.receive_or_drop(start, end);
            }
        }
    }

    fn is_in_outage(&self) -> bool {
        let now = Instant::now();
        self.outage
            .is_some_and(|(from, to)| from <= now && now < to)
    }

    fn receive_or_drop(&mut self, start: u32, end: u32) {
        if end - start > self.max_segment {
            self.oversized += 1;
        } else if start < end && !self.is_in_outage() {
            self.receive(start, end);
        }
    }

    fn receive(&mut self, start: u32, end: u32) {
        self.out_of_order.push((start, end));
        while let Some(at) = self
            .out_of_order
            .iter()
            .position(|(start, _)| *start <= self.received)
        {
            self.received = self.received.max(self.out_of_order.swap_remove(at).1);
        }
        let block = match start > self.received {
            true => format!("{start}:{end}"),
            false => String::new(),
        };
        self.acks
            .push_back((Instant::now() + RTT, self.received, block));
    }
}

fn setup() -> Setup {
    Setup {
        rtt: RTT,
        rto_min: Duration::from_millis(200),
        initial_window: 10,
        timestamps: true,
        ..Setup::bundling(limit_one())
    }
}

mod inside {
    use super::*;

    const DURATION: Duration = Duration::from_secs(10);

    #[test]
    #[ignore = "runs in the lab kernel"]
    fn no_bundle_exceeds_path_size_from_start() {
        setup().run(|wire| {
            let mut path = Path::new(700);
            let time = path.transfer(wire, DURATION);
            assert!(time < DURATION + DURATION / 20, "{time:?}");
            assert_eq!(path.oversized, 0);
        });
    }

    /// The outage also drops retransmissions of any size.
    #[test]
    #[ignore = "runs in the lab kernel"]
    fn path_is_used_immediately_after_outage() {
        for (message, itt) in [(100, 30), (200, 30), (400, 80)] {
            for outage in (200..=2000).step_by(200).map(Duration::from_millis) {
                setup().run(|wire| {
                    let mut path = Path::new(u32::MAX);
                    path.message = message;
                    path.itt = Duration::from_millis(itt);
                    let started = Instant::now() + DURATION / 10;
                    path.outage = Some((started, started + outage));
                    let time = path.transfer(wire, DURATION);
                    assert!(
                        time < DURATION + DURATION / 20,
                        "{message} bytes every {itt} ms, outage of {outage:?}: {time:?}"
                    );
                });
            }
        }
    }
}
