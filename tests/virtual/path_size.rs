//! A path that drops large packets does not stop a stream. Minutes of virtual time, inside the lab
//! kernel.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pillion_bpf::Options;
use pillion_tests::{Setup, Wire};

use crate::common::{needs_kernel, test_inside};

#[test]
fn bundling_gives_way_to_a_path_that_drops_what_is_large() {
    needs_kernel!();
    test_inside("path_size::inside::");
}

const MESSAGE: u32 = 400;
const ITT: Duration = Duration::from_millis(80);
const RTT: Duration = Duration::from_millis(100);

/// An application that writes messages, and a receiver that acknowledges each segment, as far as
/// the path lets it through.
struct Path {
    largest: u32,
    /// How many were larger.
    too_large: u32,
    /// When it loses whatever is sent.
    down: Option<(Instant, Instant)>,
    message: u32,
    itt: Duration,
    /// What has come, in order.
    come: u32,
    /// What has come behind a gap.
    behind: Vec<(u32, u32)>,
    sent: u32,
    next_write: Instant,
    acks: VecDeque<(Instant, u32, String)>,
}

impl Path {
    fn new(largest: u32) -> Self {
        Self {
            largest,
            too_large: 0,
            down: None,
            message: MESSAGE,
            itt: ITT,
            come: 1,
            behind: Vec::new(),
            sent: 0,
            next_write: Instant::now(),
            acks: VecDeque::new(),
        }
    }

    /// Sends messages for so long, and waits as long as it takes until all have come; how long.
    fn carry(&mut self, wire: &mut Wire, time: Duration) -> Duration {
        let begin = Instant::now();
        loop {
            let writes = begin.elapsed() < time;
            assert!(begin.elapsed() < 2 * time, "{} have come", self.come);
            if !writes && self.come == 1 + self.message * self.sent {
                return begin.elapsed();
            }
            if writes && Instant::now() >= self.next_write {
                wire.write(self.message);
                self.sent += 1;
                self.next_write += self.itt;
            }
            let now = Instant::now();
            if self.acks.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, number, block) = self.acks.pop_front().unwrap();
                wire.acks_late(number, &block);
            }
            let mut due = self.acks.front().map_or(now + RTT, |(at, ..)| *at);
            if writes {
                due = due.min(self.next_write);
            }
            let wait = due.saturating_duration_since(Instant::now());
            if let Some((start, end)) = wire.read_within(wait) {
                self.take(start, end);
            }
        }
    }

    fn is_down(&self) -> bool {
        let now = Instant::now();
        self.down.is_some_and(|(from, to)| from <= now && now < to)
    }

    fn take(&mut self, start: u32, end: u32) {
        if end - start > self.largest {
            self.too_large += 1;
        } else if start < end && !self.is_down() {
            self.receive(start, end);
        }
    }

    fn receive(&mut self, start: u32, end: u32) {
        self.behind.push((start, end));
        while let Some(at) = self
            .behind
            .iter()
            .position(|(start, _)| *start <= self.come)
        {
            self.come = self.come.max(self.behind.swap_remove(at).1);
        }
        let block = match start > self.come {
            true => format!("{start}:{end}"),
            false => String::new(),
        };
        self.acks
            .push_back((Instant::now() + RTT, self.come, block));
    }
}

fn setup() -> Setup {
    Setup {
        rtt: RTT,
        rto_min: Duration::from_millis(200),
        initial_window: 10,
        timestamps: true,
        ..Setup::bundling(Options::default())
    }
}

mod inside {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(10);

    #[test]
    #[ignore = "runs in the lab kernel"]
    fn from_the_start_no_bundle_is_too_large() {
        setup().run(|wire| {
            let mut path = Path::new(700);
            let time = path.carry(wire, SECONDS);
            assert!(time < SECONDS + SECONDS / 20, "{time:?}");
            assert_eq!(path.too_large, 0);
        });
    }

    /// Retransmissions are lost as well, whatever their size.
    #[test]
    #[ignore = "runs in the lab kernel"]
    fn a_path_that_was_down_for_a_while_is_used_again_at_once() {
        for (message, itt) in [(100, 30), (200, 30), (400, 80)] {
            for down in (200..=2000).step_by(200).map(Duration::from_millis) {
                setup().run(|wire| {
                    let mut path = Path::new(u32::MAX);
                    path.message = message;
                    path.itt = Duration::from_millis(itt);
                    let begin = Instant::now() + SECONDS / 10;
                    path.down = Some((begin, begin + down));
                    let time = path.carry(wire, SECONDS);
                    assert!(
                        time < SECONDS + SECONDS / 20,
                        "{message} bytes each {itt} ms, {down:?} down: {time:?}"
                    );
                });
            }
        }
    }
}
