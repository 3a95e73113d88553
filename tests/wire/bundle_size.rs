//! Tests the bundle size: as many segments as the limits allow, at most the MSS, and at most 2,047
//! bytes. The payload always stays below the memory that the kernel charges for the packet.

use pillion_bpf::Outcome::{self, Bundled, FullSize, NoRoom, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Setup, limit_one, segment_overhead};

fn limits(max_packets: u32, max_bytes: u32) -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        max_bytes,
        ..limit_one()
    })
}

#[test]
fn limit_of_one_bundles_one_previous_segment() {
    limits(1, 0).run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Outcome::Bundled, 3), (Outcome::NothingOutstanding, 1)]);
    });
}

#[test]
fn limit_of_two_bundles_two_previous_segments() {
    limits(2, 0).run_on_ip_variants(|wire| wire.sends("1:101 1:201 1:301 101:401"));
}

#[test]
fn unlimited_bundle_fills_mss() {
    limits(0, 0).run_on_ip_variants(|wire| {
        wire.prove_path();
        wire.sends("1:401 1:801 1:1201 401:1601");
    });
}

#[test]
fn max_bytes_limits_new_and_redundant_bytes_together() {
    limits(0, 450).run_on_ip_variants(|wire| wire.sends("1:101 1:201 1:301 1:401 101:501 201:601"));
}

fn jumbo() -> Setup {
    Setup {
        mss: 8960,
        ..Setup::default()
    }
}

#[test]
fn segment_of_mss_size_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 101 + mss));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (FullSize, 1)]);
    });
}

#[test]
fn segment_one_byte_below_mss_has_no_room() {
    Setup::default().run_on_ip_variants(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 101 + mss - 1));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (NoRoom, 1)]);
    });
}

#[test]
fn exact_fit_is_bundled() {
    Setup::default().run_on_ip_variants(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 1:{}", 1 + mss));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (Bundled, 1)]);
    });
}

#[test]
fn one_byte_over_exact_fit_is_not_bundled() {
    Setup::default().run_on_ip_variants(|wire| {
        let mss = wire.mss();
        wire.sends(&format!("1:101 101:{}", 1 + mss + 1));
        wire.assert_outcomes(&[(NothingOutstanding, 1), (NoRoom, 1)]);
    });
}

#[test]
fn sack_blocks_reduce_room_within_mss() {
    for blocks in 1..=3 {
        Setup::default().run_on_ip_variants(|wire| {
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
fn bundles_shrink_with_mtu() {
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
            ..limit_one()
        })
        .run(|wire| wire.sends(ranges));
    }
}

#[test]
fn jumbo_segments_grow_to_2047_bytes() {
    jumbo().run_on_ip_variants(|wire| {
        wire.sends("1:801 1:2048");
        wire.ack(2048);
        wire.sends("2048:2848 2848:4096");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 2), (NoRoom, 1)]);
    });
}

#[test]
fn segment_over_2047_bytes_is_not_bundled() {
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

// A receiver in the same kernel takes the charged memory for the real segment size
// (`tcp_measure_rcv_mss()`).

#[test]
fn redundant_bytes_stay_below_empty_segment_overhead() {
    for own in [1, 120, 448, 700] {
        jumbo().run_on_ip_variants(|wire| {
            let max_redundant = segment_overhead() - 1;
            let end = 1 + max_redundant + own;
            wire.sends(&format!("1:{} 1:{end}", 1 + max_redundant));
            wire.ack(end);
            let second = end + max_redundant + 1;
            wire.sends(&format!("{end}:{second} {second}:{}", second + own));
            assert_eq!(wire.totals().counters.of(Bundled), 1);
            assert_eq!(wire.totals().counters.of(NoRoom), 1);
        });
    }
}

#[test]
fn unlimited_bundle_is_bounded_by_memory() {
    jumbo().run(|wire| {
        wire.prove_path();
        let max_redundant = (segment_overhead() - 1) / 100;
        for segment in 1..=2 * max_redundant {
            let first = segment.saturating_sub(max_redundant + 1);
            wire.sends(&format!("{}:{}", 1 + first * 100, 1 + segment * 100));
        }
    });
}

/// A segment with the payload of several writes takes no more memory than one with a single write.
#[test]
fn coalesced_writes_take_no_more_memory() {
    jumbo().run(|wire| {
        let max_redundant = segment_overhead() - 1;
        wire.sends(&format!("1:{}", 2 + max_redundant));
        wire.write_with(50, libc::MSG_MORE);
        wire.write(50);
        wire.expect(&format!("{}:{}", 2 + max_redundant, 102 + max_redundant));
        wire.ack(102 + max_redundant);
        let start = 102 + max_redundant;
        wire.sends(&format!("{start}:{}", start + max_redundant));
        wire.write_with(50, libc::MSG_MORE);
        wire.write(50);
        wire.expect(&format!("{start}:{}", start + max_redundant + 100));
    });
}

#[test]
fn file_bytes_take_no_more_memory() {
    jumbo().run(|wire| {
        let max_redundant = segment_overhead() - 1;
        for (first, is_bundled) in [(max_redundant, true), (max_redundant + 1, false)] {
            let start = wire.written() + 1;
            let (second, end) = (start + first, start + first + 100);
            wire.sends(&format!("{start}:{second}"));
            wire.send_file(100);
            let from = if is_bundled { start } else { second };
            wire.expect(&format!("{from}:{end}"));
            wire.ack(end);
        }
    });
}

/// Zero-copy pages are charged as whole pages. While the first packet is in flight, TCP sends a
/// copy, which is charged like any other.
#[test]
fn zerocopy_pages_take_no_more_memory() {
    jumbo().run(|wire| {
        let one = 1i32.to_ne_bytes();
        wire.set_option((libc::SOL_SOCKET, libc::SO_ZEROCOPY), &one);
        let max_redundant = segment_overhead() - 1;
        for (first, is_bundled) in [(max_redundant, true), (max_redundant + 1, false)] {
            let start = wire.written() + 1;
            let (second, end) = (start + first, start + first + 100);
            wire.sends(&format!("{start}:{second}"));
            wire.write_with(100, libc::MSG_ZEROCOPY);
            let from = if is_bundled { start } else { second };
            wire.expect(&format!("{from}:{end}"));
            wire.ack(end);
        }
    });
}
