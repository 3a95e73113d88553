//! How much rides along: as many segments as the limits allow, no packet larger than the MSS or with
//! more than 2,047 bytes, and never as much payload as the kernel counts memory for it.

use pillion_bpf::Outcome::{self, Bundled, FullSize, NoRoom, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Setup, segment_overhead};

fn limits(max_packets: u32, max_bytes: u32) -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        max_bytes,
        ..Options::default()
    })
}

#[test]
fn with_limit_1_the_previous_segment_rides_along() {
    limits(1, 0).run_everywhere(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Outcome::Bundled, 3), (Outcome::NothingOutstanding, 1)]);
    });
}

#[test]
fn with_limit_2_two_previous_segments_ride_along() {
    limits(2, 0).run_everywhere(|wire| wire.sends("1:101 1:201 1:301 101:401"));
}

#[test]
fn without_a_limit_all_that_fits_into_the_mss_rides_along() {
    limits(0, 0).run_everywhere(|wire| {
        wire.prove_path();
        wire.sends("1:401 1:801 1:1201 401:1601");
    });
}

#[test]
fn max_bytes_limits_new_and_redundant_bytes_together() {
    limits(0, 450).run_everywhere(|wire| wire.sends("1:101 1:201 1:301 1:401 101:501 201:601"));
}

fn jumbo() -> Setup {
    Setup {
        mss: 8960,
        ..Setup::default()
    }
}

#[test]
fn a_segment_of_the_mss_is_untouched() {
    Setup::default().run_everywhere(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 101 + mss));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (FullSize, 1)]);
    });
}

#[test]
fn one_byte_less_than_the_mss_has_no_room() {
    Setup::default().run_everywhere(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 101 + mss - 1));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (NoRoom, 1)]);
    });
}

#[test]
fn an_exact_fit_rides_along() {
    Setup::default().run_everywhere(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 1:{}", 1 + mss));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (Bundled, 1)]);
    });
}

#[test]
fn one_byte_more_than_an_exact_fit_does_not() {
    Setup::default().run_everywhere(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 1 + mss + 1));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (NoRoom, 1)]);
    });
}

#[test]
fn sack_blocks_take_their_room_from_the_mss() {
    for blocks in 1..=3 {
        Setup::default().run_everywhere(|wire| {
            for gap in 1..=blocks {
                wire.peer_sends(1, 100 * gap, 10);
                wire.expect("1:1");
            }
            let room = wire.mss() - 4 - 8 * blocks;
            wire.sends(&format!("1:101 1:{}", 1 + room));
            wire.ack(1 + room);
            let (start, second) = (1 + room, 101 + room);
            let end = start + room + 1;
            wire.sends(&format!("{start}:{second} {second}:{end}"));
            wire.assert_outcomes(&[(NothingOutstanding, 2), (Bundled, 1), (NoRoom, 1)]);
        });
    }
}

#[test]
fn bundles_shrink_with_the_mtu() {
    Setup::default().run(|wire| {
        wire.prove_path();
        wire.sends("1:401 1:801");
        wire.set_mtu(1040);
        wire.sends("401:1201 801:1801 1201:2001");
    });
}

#[test]
fn max_bytes_is_reached_but_not_exceeded() {
    for (max_bytes, ranges) in [(200, "1:101 1:201"), (199, "1:101 101:201")] {
        Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(0),
            max_bytes,
            ..Options::default()
        })
        .run(|wire| wire.sends(ranges));
    }
}

#[test]
fn jumbo_segments_grow_to_2047_bytes() {
    jumbo().run_everywhere(|wire| {
        wire.sends("1:801 1:2048");
        wire.ack(2048);
        wire.sends("2048:2848 2848:4096");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 2), (NoRoom, 1)]);
    });
}

#[test]
fn what_is_larger_than_2047_bytes_does_not_ride_along() {
    jumbo().run(|wire| {
        wire.sends("1:101 101:2149 2149:2249 2149:2349");
        wire.assert_outcomes(&[
            (Bundled, 1),
            (NothingOutstanding, 1),
            (FullSize, 1),
            (NoRoom, 1),
        ]);
    });
}

// A receiver in the same kernel would take the memory counted for a packet for the truth
// (`tcp_measure_rcv_mss()`).

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
