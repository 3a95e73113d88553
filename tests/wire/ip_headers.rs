//! IP headers that are longer than usual.

use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, FullSize, NoHistory, NotPlainIp, NothingOutstanding, Unwatched,
};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Checksums, Ip, Setup};

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
