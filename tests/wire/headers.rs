//! Tests link headers (with VLAN tags, or none), IP options, extension headers, and checksums with
//! each kind of offload. [`pillion_tests::Wire::expect`] verifies tags and checksums, and where the
//! checksum was computed.

use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, FullSize, LossDetectionUnavailable, NoHistory, NothingOutstanding, UnparsedIp,
};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Checksums, Ip, Link, Setup, limit_one, netstat};

/// Sends bundles of all sizes, and checks that their DSACKs are removed from incoming ACKs.
fn bundles_and_reports(setup: Setup) {
    setup.run(|wire| {
        let full = wire.mss() + 1;
        wire.sends(&format!("1:2 1:4 1:104 1:{full}"));
        wire.ack(104);
        wire.ack_duplicate(full, "1:104", "");
        let next = full + 77;
        wire.sends(&format!("{full}:{next} {full}:{}", next + 64));
        wire.assert_outcomes(&[(Bundled, 4), (NothingOutstanding, 2)]);
        assert_eq!(wire.totals().counters.dsacks_removed, 1);
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

macro_rules! link_tests {
    ($($name:ident = $link:expr;)*) => {
        $(#[test]
        fn $name() {
            let link = $link;
            bundles_and_reports(Setup {
                link,
                ..Setup::default()
            });
            bundles_and_reports(Setup {
                link,
                ip: Ip::V6,
                timestamps: true,
                checksums: Checksums::Device,
                ..Setup::default()
            });
        })*
    };
}

link_tests! {
    tag_left_to_device_is_kept = Link::Ethernet { tags: 1 };
    one_inline_and_one_offloaded_tag_are_kept = Link::Ethernet { tags: 2 };
    two_inline_and_one_offloaded_tags_are_kept = Link::Ethernet { tags: 3 };
    packets_without_link_header_are_bundled = Link::Absent;
}

#[test]
fn ipv4_options_do_not_prevent_bundling() {
    for checksums in [Checksums::Kernel, Checksums::Device, Checksums::Bridge] {
        let setup = Setup {
            checksums,
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.prove_path();
            let four_nops = [1; 4];
            wire.set_option((libc::IPPROTO_IP, libc::IP_OPTIONS), &four_nops);
            let (full, second) = (1 + wire.mss() - 4, 1 + 700 + wire.mss() - 4);
            wire.sends(&format!("1:101 1:701 1:{full} 701:{second}"));
            wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 1), (FullSize, 1)]);
        });
    }
}

#[test]
fn ipv6_extension_headers_leave_segment_untouched() {
    let ip = Ip::V6;
    Setup {
        ip,
        ..Setup::default()
    }
    .run(|wire| {
        wire.sends("1:101 1:201");
        let padding = [0, 0, 1, 4, 0, 0, 0, 0];
        let option = (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS);
        wire.set_option(option, &padding);
        wire.sends("201:301 301:401");
        wire.set_option(option, &[]);
        wire.sends("401:501 401:601");
        wire.assert_outcomes(&[
            (Bundled, 2),
            (NothingOutstanding, 1),
            (UnparsedIp, 2),
            (NoHistory, 1),
        ]);
    });
}

/// The earlier segment may have arrived with the retransmission, which cannot be parsed.
#[test]
fn retransmission_with_ipv6_extension_reveals_no_loss() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: None,
        loss_rule: LossRule::Dsack,
        ..limit_one()
    };
    let setup = Setup {
        ip: Ip::V6,
        rto_min: Duration::from_millis(300),
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        let padding = [0, 0, 1, 4, 0, 0, 0, 0];
        wire.set_option((libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS), &padding);
        wire.expect("1:201");
        wire.ack(201);
        assert_eq!(wire.totals().counters.hidden_losses, 0);
    });
}

#[test]
fn acks_with_ipv6_extension_pause_bundling() {
    let setup = Setup {
        ip: Ip::V6,
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_with_header(201);
        wire.sends("301:401");
        assert_eq!(wire.totals().counters.acks_unparsed, 1);
        wire.ack(401);
        wire.sends("401:501 401:601");
        wire.assert_outcomes(&[
            (Bundled, 3),
            (NothingOutstanding, 2),
            (LossDetectionUnavailable, 1),
        ]);
    });
}

/// Sends odd and even numbers of new and redundant bytes, up to a full MSS.
fn test_odd_and_even(checksums: Checksums) {
    let setup = Setup {
        checksums,
        ..Setup::default()
    };
    setup.run_on_ip_variants(|wire| {
        wire.prove_path();
        let full = wire.mss() + 1;
        wire.sends(&format!("1:2 1:4 1:104 1:203 1:536 1:801 1:{full}"));
        wire.ack(full);
        let (next, last) = (full + 77, full + 77 + 64);
        wire.sends(&format!("{full}:{next} {full}:{last}"));
        wire.assert_outcomes(&[(Bundled, 7), (NothingOutstanding, 2), (FullSize, 1)]);
    });
}

/// Covers every remainder of the chunks in which the bundler computes checksums.
fn test_every_length(checksums: Checksums) {
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

/// Sends the largest possible segment with a bundle.
fn test_largest(checksums: Checksums) {
    let setup = Setup {
        checksums,
        mss: 8960,
        ..Setup::default()
    };
    setup.run_on_ip_variants(|wire| {
        wire.sends("1:801 1:2047");
        wire.ack(2047);
        wire.sends("2047:2846 2047:4094");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 2)]);
    });
}

macro_rules! checksum_tests {
    ($($name:ident = $checksums:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn checksum_is_correct_for_odd_and_even_lengths() {
                test_odd_and_even($checksums);
            }

            #[test]
            fn checksum_is_correct_for_every_length() {
                test_every_length($checksums);
            }

            #[test]
            fn checksum_is_correct_for_largest_segment() {
                test_largest($checksums);
            }
        })*
    };
}

checksum_tests! {
    kernel_checksums = Checksums::Kernel;
    device_checksums = Checksums::Device;
    bridge_checksums = Checksums::Bridge;
}
