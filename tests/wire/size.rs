//! A segment with its bundle is never larger than the MSS, nor than 2,047 bytes.

use pillion_bpf::Outcome::{Bundled, FullSize, NoRoom, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::Setup;

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
