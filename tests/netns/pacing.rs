//! SO_MAX_PACING_RATE limits everything that a stream sends, including bundles.

use std::time::Instant;

use pillion_bpf::Outcome::{Bundled, Paced};
use pillion_tests::set_option;

use crate::common::*;
use crate::stream::{Carriage, carry_over, content, read_to_end, send_thinly};

/// Bytes a second. The stream itself needs 20,000, plus 10,400 for headers.
const RATE: u32 = 40_000;
const MESSAGE: usize = 100;
const MESSAGES: usize = 800;
const ETHERNET: u64 = 14;

#[test]
fn bundles_do_not_exceed_the_pacing_rate() {
    needs_root!();
    let pair = clean_pair();
    let data = content(MESSAGES * MESSAGE);
    let sent = data.clone();
    let started = Instant::now();
    let outcome = carry_over(
        &pair,
        Carriage::Bundled,
        move |stream| {
            let rate = RATE.to_ne_bytes();
            set_option(stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate);
            let started = Instant::now();
            send_thinly(stream, &sent, MESSAGE, 0);
            started.elapsed().as_secs_f64()
        },
        read_to_end,
    );
    assert!(outcome.received == data, "after {:?}", started.elapsed());
    let volume = pair.path.ledger().forward.received;
    let rate = (volume.bytes - ETHERNET * volume.packets) as f64 / outcome.sent;
    let counters = outcome.counters.expect("a bundler");
    println!("{rate:.0} bytes a second, {:?}", counters.outcomes);
    // One bundle may leave before the limit is known to be reached.
    assert!(rate < f64::from(RATE) * 1.05, "{rate:.0} bytes a second");
    assert!(counters.of(Bundled) > 0 && counters.of(Paced) > 0);
}
