//! Reports of bundles while very much is in flight.

use std::collections::VecDeque;

use pillion_bpf::{LossRule, Options, Outcome, ThinTest};
use pillion_tests::{Setup, netstat};

/// So many segments of ten bytes are in flight all the time, and each is acknowledged by itself.
fn reports_stay_hidden(in_flight: u32, max_packets: u32) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    };
    Setup::bundling(options).run(|wire| {
        let mut on_their_way = VecDeque::new();
        for _ in 0..4 * in_flight {
            wire.write(10);
            on_their_way.push_back(wire.read());
            if on_their_way.len() < in_flight as usize {
                continue;
            }
            let (start, end) = on_their_way.pop_front().expect("one is there");
            match end - start {
                10 => wire.ack(end),
                _ => wire.ack_duplicate(end, &format!("{start}:{}", end - 10), ""),
            }
        }
        let counters = wire.totals().counters;
        let bundled = counters.of(Outcome::Bundled);
        println!("{in_flight} in flight, {max_packets}: {bundled} bundled, {counters:?}");
        assert!(bundled > u64::from(in_flight) / 2);
        assert_eq!((netstat("TCPDSACKRecv"), counters.hidden_losses), (0, 0));
    });
}

#[test]
fn reports_are_hidden_with_more_than_a_hundred_in_flight() {
    for in_flight in [100, 115, 120, 126, 150] {
        reports_stay_hidden(in_flight, 1);
    }
}

#[test]
fn reports_of_long_bundles_are_hidden_with_many_in_flight() {
    for in_flight in [40, 60, 90, 120] {
        reports_stay_hidden(in_flight, 8);
        reports_stay_hidden(in_flight, 0);
    }
}
