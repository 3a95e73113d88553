//! What stands before the IP header: VLAN tags, or nothing.
//!
//! [`pillion_tests::Wire::expect`] verifies that the tags are those that the packet had.

use pillion_bpf::Outcome::{Bundled, NothingOutstanding};
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
