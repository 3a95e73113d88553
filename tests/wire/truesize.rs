//! A packet never has as much payload as the kernel counts memory for it: a receiver in the same
//! kernel would take that for the truth (`tcp_measure_rcv_mss()`).

use pillion_bpf::Outcome::{Bundled, NoRoom};
use pillion_tests::{Setup, segment_overhead};

fn jumbo() -> Setup {
    Setup {
        mss: 8960,
        ..Setup::default()
    }
}

#[test]
fn what_rides_along_takes_less_than_a_segment_without_payload() {
    for own in [1, 120, 448, 700] {
        jumbo().run_everywhere(|wire| {
            let most = segment_overhead() - 1;
            let end = 1 + most + own;
            wire.sends(&format!("1:{} 1:{end}", 1 + most));
            wire.ack(end);
            let second = end + most + 1;
            wire.sends(&format!("{end}:{second} {second}:{}", second + own));
            assert_eq!(wire.totals().counters.of(Bundled), 1);
            assert_eq!(wire.totals().counters.of(NoRoom), 1);
        });
    }
}

#[test]
fn without_a_limit_as_many_ride_along_as_the_memory_allows() {
    jumbo().run(|wire| {
        wire.prove_path();
        let most = (segment_overhead() - 1) / 100;
        for segment in 1..=2 * most {
            let first = segment.saturating_sub(most + 1);
            wire.sends(&format!("{}:{}", 1 + first * 100, 1 + segment * 100));
        }
    });
}

/// Payload of several writes in one segment takes no more memory than that of one.
#[test]
fn writes_that_tcp_puts_together_take_no_more() {
    jumbo().run(|wire| {
        let most = segment_overhead() - 1;
        wire.sends(&format!("1:{}", 2 + most));
        wire.write_with(50, libc::MSG_MORE);
        wire.write(50);
        wire.expect(&format!("{}:{}", 2 + most, 102 + most));
        wire.ack(102 + most);
        let start = 102 + most;
        wire.sends(&format!("{start}:{}", start + most));
        wire.write_with(50, libc::MSG_MORE);
        wire.write(50);
        wire.expect(&format!("{start}:{}", start + most + 100));
    });
}

#[test]
fn a_files_bytes_take_no_more() {
    jumbo().run(|wire| {
        let most = segment_overhead() - 1;
        for (first, rides) in [(most, true), (most + 1, false)] {
            let start = wire.written() + 1;
            let (second, end) = (start + first, start + first + 100);
            wire.sends(&format!("{start}:{second}"));
            wire.send_file(100);
            let from = if rides { start } else { second };
            wire.expect(&format!("{from}:{end}"));
            wire.ack(end);
        }
    });
}

/// What is sent from the application's own pages counts as whole ones; but while its first packet is
/// on its way, TCP sends a copy, which counts as any other.
#[test]
fn pages_of_the_application_take_no_more() {
    jumbo().run(|wire| {
        let one = 1i32.to_ne_bytes();
        wire.set_option((libc::SOL_SOCKET, libc::SO_ZEROCOPY), &one);
        let most = segment_overhead() - 1;
        for (first, rides) in [(most, true), (most + 1, false)] {
            let start = wire.written() + 1;
            let (second, end) = (start + first, start + first + 100);
            wire.sends(&format!("{start}:{second}"));
            wire.write_with(100, libc::MSG_ZEROCOPY);
            let from = if rides { start } else { second };
            wire.expect(&format!("{from}:{end}"));
            wire.ack(end);
        }
    });
}
