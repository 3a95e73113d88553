//! A congestion control that sets its window itself, as BBR does, ignores CWR.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::Outcome::OverShare;
use pillion_bpf::{LossRule, Options, ThinTest, offered_congestion_controls};
use pillion_tests::{Setup, Wire};

/// A connection with this RTT that has hidden a loss, if the kernel has its congestion control.
fn after_a_hidden_loss(congestion: &str, rtt_ms: u64, test: impl FnOnce(&mut Wire) + Send) {
    if !offered_congestion_controls().contains(&congestion.to_owned()) {
        println!("left out without {congestion}");
        return;
    }
    let setup = Setup {
        rtt: Duration::from_millis(rtt_ms),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            loss_rule: LossRule::Dsack,
            ..Options::default()
        })
    };
    setup.run(|wire| {
        let option = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        wire.set_option(option, congestion.as_bytes());
        wire.sends("1:101 1:201");
        wire.ack(201);
        // A reaction waits for a quarter of the RTT.
        sleep(Duration::from_millis(100));
        test(wire);
    });
}

fn over_share(wire: &Wire) -> u64 {
    wire.totals().counters.of(OverShare)
}

#[test]
fn no_reaction_is_counted_that_bbr_ignores() {
    for (congestion, expected) in [("bbr", 0), ("reno", 1)] {
        after_a_hidden_loss(congestion, 20, |wire| {
            wire.sends("201:301 201:401");
            let counters = wire.totals().counters;
            assert_eq!((counters.hidden_losses, counters.reactions), (1, expected));
            assert_eq!(wire.flow().ignores_cwr, congestion == "bbr");
        });
    }
}

#[test]
fn under_bbr_nothing_is_bundled_above_the_fair_share() {
    after_a_hidden_loss("bbr", 300, |wire| {
        wire.sends("201:301 301:401");
        assert_eq!(over_share(wire), 1);
    });
}

#[test]
fn under_reno_a_reduction_follows_instead() {
    after_a_hidden_loss("reno", 300, |wire| {
        wire.sends("201:301 201:401");
        assert_eq!(over_share(wire), 0);
    });
}
