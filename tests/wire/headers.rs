//! Headers: link headers (VLAN tags, or none), IP options and extension headers, and checksums, right
//! whoever computes them. [`pillion_tests::Wire::expect`] verifies tags and checksums, and that these
//! were computed where they should be.

use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, FullSize, NoHistory, NotPlainIp, NothingOutstanding, Unwatched,
};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Checksums, Ip, Link, Setup, netstat};

/// Bundles of all sizes leave, and reports of them are taken out of ACKs that come in.
fn bundles_and_reports(setup: Setup) {
    setup.run(|wire| {
        let full = wire.mss() + 1;
        wire.sends(&format!("1:2 1:4 1:104 1:{full}"));
        wire.ack(104);
        wire.ack_duplicate(full, "1:104", "");
        let next = full + 77;
        wire.sends(&format!("{full}:{next} {full}:{}", next + 64));
        wire.assert_outcomes(&[(Bundled, 4), (NothingOutstanding, 2)]);
        assert_eq!(wire.totals().counters.dsacks_hidden, 1);
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

macro_rules! links {
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

links! {
    a_tag_that_is_left_to_the_device_is_kept = Link::Ethernet { tags: 1 };
    a_tag_in_the_packet_and_one_beside_it_are_kept = Link::Ethernet { tags: 2 };
    two_tags_in_the_packet_and_one_beside_it_are_kept = Link::Ethernet { tags: 3 };
    packets_without_a_link_header_are_bundled = Link::Absent;
}

#[test]
fn ipv4_options_are_in_nobodys_way() {
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
fn ipv6_extension_headers_leave_a_segment_untouched() {
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
            (NotPlainIp, 2),
            (NoHistory, 1),
        ]);
    });
}

/// What was sent before may have come by the retransmission, though that cannot be read.
#[test]
fn what_is_retransmitted_behind_ipv6_extension_headers_is_no_hidden_loss() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: None,
        loss_rule: LossRule::Dsack,
        ..Options::default()
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
fn acks_behind_ipv6_extension_headers_end_bundling_until_one_can_be_read() {
    let setup = Setup {
        ip: Ip::V6,
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_behind_header(201);
        wire.sends("301:401");
        assert_eq!(wire.totals().counters.acks_unread, 1);
        wire.ack(401);
        wire.sends("401:501 401:601");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 2), (Unwatched, 1)]);
    });
}

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
