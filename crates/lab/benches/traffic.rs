//! Benchmarks through loopback with messages of 120 B; each prints one line:
//!
//! * Cost of a message: 20 streams at unlimited pace. The schedule exceeds the possible rate, so
//!   both ends are always busy.
//! * Punctuality of messages: 1,000 streams, a message every 100 ms, for ten seconds, on two sender
//!   threads and one receiver thread.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use pillion_lab::traffic::{Distribution, Group, Kind, ReceiveConfig, Receiver, Sender, Traffic};

static NO_STOP: AtomicBool = AtomicBool::new(false);

/// Returns the processor time of the calling thread, in nanoseconds.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64
}

fn main() {
    cost();
    lateness();
}

fn cost() {
    let receiver = Receiver::bind(ReceiveConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        streams: Some(20),
        datagrams: false,
        records: true,
    })
    .expect("loopback can be listened on");
    let kind = Kind::Thin {
        itt: Distribution::constant(1e-3),
        size: Distribution::constant(120.0),
    };
    let group = Group {
        streams: 20,
        ..Group::new("thin", kind)
    };
    let sender = Sender::new(Traffic {
        duration: Some(Duration::from_millis(20)),
        seed: 1,
        drain_timeout: Duration::from_secs(60),
        ..Traffic::new(receiver.local_addr(), group)
    })
    .expect("the configuration is valid");
    let planned = sender.planned().unwrap_or(0) as f64;

    let started = Instant::now();
    let receiving = thread::spawn(|| {
        let before = cpu_ns();
        let received = receiver.run(&NO_STOP).expect("the receiver runs");
        (received.report, cpu_ns() - before)
    });
    let before = cpu_ns();
    let sent = sender.run(&NO_STOP).expect("the receiver listens");
    let sender_ns = cpu_ns() - before;
    let (report, receiver_ns) = receiving.join().expect("the receiver does not panic");
    let seconds = started.elapsed().as_secs_f64();

    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    println!(
        "{planned} messages of 120 B, 20 streams: {:.0} messages/s; processor time a message: \
         sender {:.0} ns, receiver {:.0} ns; {:.1} % waited for a full socket",
        planned / seconds,
        sender_ns / planned,
        receiver_ns / planned,
        sent.blocked_writes as f64 / planned * 100.0,
    );
}

fn lateness() {
    const STREAMS: usize = 1000;
    let receiver = Receiver::bind(ReceiveConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        streams: Some(STREAMS),
        datagrams: false,
        records: false,
    })
    .expect("loopback can be listened on");
    let kind = Kind::Thin {
        itt: Distribution::constant(100.0),
        size: Distribution::constant(120.0),
    };
    let group = Group {
        streams: STREAMS,
        ..Group::new("thin", kind)
    };
    let sender = Sender::new(Traffic {
        duration: Some(Duration::from_secs(10)),
        threads: 2,
        ..Traffic::new(receiver.local_addr(), group)
    })
    .expect("the configuration is valid");
    let receiving = thread::spawn(move || receiver.run(&NO_STOP).expect("the receiver runs"));
    let sent = sender.run(&NO_STOP).expect("the receiver listens");
    let report = receiving
        .join()
        .expect("the receiver does not panic")
        .report;
    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    let lateness_us = sent.send_error_us;
    println!(
        "{} messages of 120 B, {STREAMS} streams, every 100 ms, 2 threads: handed over late by \
         p50 {:.0}, p99 {:.0}, max {:.0} us",
        sent.messages, lateness_us.p50, lateness_us.p99, lateness_us.max,
    );
}
