//! The checksum is right whoever computes it. [`pillion_tests::Wire::expect`] verifies
//! it, and that it was computed where it should be.

use pillion_bpf::Outcome::{Bundled, FullSize, NothingOutstanding};
use pillion_tests::{Checksums, Setup};

/// New and redundant bytes in odd and even numbers, up to a full MSS.
fn odd_and_even(checksums: Checksums) {
    let setup = Setup {
        checksums,
        ..Setup::default()
    };
    setup.run_everywhere(|wire| {
        wire.prove_path();
        let full = wire.mss() + 1;
        wire.sends(&format!("1:2 1:4 1:104 1:203 1:536 1:801 1:{full}"));
        wire.ack(full);
        let (next, last) = (full + 77, full + 77 + 64);
        wire.sends(&format!("{full}:{next} {full}:{last}"));
        wire.assert_outcomes(&[(Bundled, 7), (NothingOutstanding, 2), (FullSize, 1)]);
    });
}

/// Every remainder of the chunks in which the bundler may have to sum up.
fn every_length(checksums: Checksums) {
    let setup = Setup {
        checksums,
        ..Setup::default()
    };
    setup.run(|wire| {
        let mut start = 1;
        for length in 1..=64 {
            let end = start + length;
            wire.sends(&format!("{start}:{end} {start}:{}", end + 1));
            wire.ack(end + 1);
            start = end + 1;
        }
        wire.assert_outcomes(&[(Bundled, 64), (NothingOutstanding, 64)]);
    });
}

/// The largest segment with a bundle there is.
fn largest(checksums: Checksums) {
    let setup = Setup {
        checksums,
        mss: 8960,
        ..Setup::default()
    };
    setup.run_everywhere(|wire| {
        wire.sends("1:801 1:2047");
        wire.ack(2047);
        wire.sends("2047:2846 2047:4094");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 2)]);
    });
}

macro_rules! who_computes {
    ($($name:ident = $checksums:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn is_right_for_odd_and_even_lengths() {
                odd_and_even($checksums);
            }

            #[test]
            fn is_right_for_every_length() {
                every_length($checksums);
            }

            #[test]
            fn is_right_for_the_largest_segment() {
                largest($checksums);
            }
        })*
    };
}

who_computes! {
    computed_by_the_kernel = Checksums::Kernel;
    left_to_the_device = Checksums::Device;
    complete_before_the_bundler = Checksums::Bridge;
}
