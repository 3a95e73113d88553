//! Tests of connections that this host's own NAT translates.

use pillion_bpf::{Level, LossRule, Options, ThinTest};
use pillion_tests::{Setup, limit_one, netstat, nft};

#[test]
fn report_of_copy_without_bundle_is_removed() {
    let options = Options {
        thin: ThinTest::Always,
        level: Some(Level::None),
        copies: 1,
        loss_rule: LossRule::Dsack,
        ..limit_one()
    };
    Setup::bundling(options).run_on_ip_variants(|wire| {
        nft("table inet t {
                chain p {
                    type nat hook postrouting priority 100;
                    meta l4proto tcp masquerade to :20000-20999
                }
            }");
        wire.reconnect(7777);
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        wire.ack_duplicate(101, "1:101", "");
        assert_eq!(wire.totals().counters.dsacks_removed, 1);
        assert_eq!(netstat("TCPDSACKIgnoredDubious"), 0);
    });
}
