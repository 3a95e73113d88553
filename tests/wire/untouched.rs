//! Tests that all packets except plain segments of new data pass byte for byte, and that bundling
//! continues afterwards. Retransmissions and GSO have their own files.
//!
//! Not tested: TCP-AO, which few kernels support (it is an option like MD5), and kTLS offload,
//! which needs special hardware.

use std::net::UdpSocket;
use std::time::Duration;

use etherparse::UdpHeader;
use pillion_bpf::Outcome::{
    Bundled, Flags, FullSize, NoHistory, NoRoom, NothingOutstanding, Retransmission, TcpOption,
    UnparsedIp,
};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Ip, Setup, limit_one, sysctl};

#[test]
fn reset_for_unread_data_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(1, 0, 100);
        wire.expect("201:201");
        wire.close();
        wire.expect("201:201R");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
    });
}

#[test]
fn reset_by_application_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        let abort = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
        wire.set_option((libc::SOL_SOCKET, libc::SO_LINGER), &abort);
        wire.close();
        wire.expect("201:201R");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
    });
}

#[test]
fn mtu_probe_is_untouched() {
    Setup::default().run(|wire| {
        sysctl("net.ipv4.tcp_mtu_probing", "2");
        wire.reconnect(7778);
        let mss = wire.tcp_info().tcpi_snd_mss;
        assert!(mss < 1460, "probing starts below the MSS: {mss}");
        wire.sends("1:101");
        wire.write(20_000);
        let (start, end) = wire.read();
        assert_eq!(start, 101);
        assert!(end - start > mss, "a probe is larger than the MSS: {end}");
        assert_eq!(wire.totals().counters.of(FullSize), 1);
    });
}

#[test]
fn datagrams_are_untouched_whole_or_fragmented() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        let socket = UdpSocket::bind("10.0.0.1:9999").expect("a socket");
        for length in [0, 1, 100, 1492, 1493, 5000] {
            let payload: Vec<u8> = (0..length).map(|at: u32| at.to_be_bytes()[3]).collect();
            socket.send_to(&payload, "10.0.0.2:7777").expect("sent");
            let mut header =
                UdpHeader::without_ipv4_checksum(9999, 7777, payload.len()).expect("it fits");
            let checksum = header.calc_checksum_ipv4_raw([10, 0, 0, 1], [10, 0, 0, 2], &payload);
            header.checksum = checksum.expect("it fits");
            let packet = wire.packet();
            assert_eq!(packet.fragments, payload.len().div_ceil(1492).max(1));
            assert_eq!(packet.payload, [&header.to_bytes(), &payload[..]].concat());
        }
        wire.sends("1:301");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
    });
}

#[test]
fn ip_fragments_are_untouched_and_bundles_fit_device() {
    Setup::default().run(|wire| {
        wire.reconnect_with_fragments(7778, 800);
        wire.sends("1:761");
        wire.ack(761);
        wire.sends("761:1161 761:1521 1161:1522");
        wire.sends_in_fragments(1000);
        wire.sends("2522:2722 2522:2922 2722:3322");
        wire.assert_outcomes(&[
            (Bundled, 4),
            (NothingOutstanding, 2),
            (UnparsedIp, 1),
            (NoRoom, 1),
        ]);
    });
}

#[test]
fn forwarded_segments_are_untouched() {
    Setup::default().run(|wire| {
        let router = wire.router();
        wire.sends("1:101 1:201");
        router.forwards(wire, 1, 101);
        router.forwards(wire, 101, 201);
        router.forwards(wire, 201, 301);
        wire.sends("1:301");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
    });
}

#[test]
fn signed_segments_are_untouched() {
    for ip in [Ip::V4, Ip::V6] {
        let signed = true;
        let setup = Setup {
            ip,
            signed,
            ..Setup::default()
        };
        setup.run(|wire| {
            let full = 301 + wire.mss();
            wire.sends(&format!("1:101 101:201 201:301 301:{full}"));
            wire.assert_outcomes(&[(TcpOption, 4)]);
        });
    }
}

#[test]
fn syn_with_data_is_untouched() {
    Setup::default().run(|wire| {
        assert_eq!(wire.reconnect_with_data(7778, 100, true), 0);
        wire.expect("1:1");
        wire.sends("1:101 1:201");
        assert_eq!(wire.reconnect_with_data(7779, 100, true), 100);
        wire.expect("101:101");
        wire.sends("101:201 101:301");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 2)]);
    });
}

#[test]
fn refused_syn_data_is_retransmitted_untouched() {
    Setup::default().run(|wire| {
        wire.reconnect_with_data(7778, 100, true);
        wire.expect("1:1");
        assert_eq!(wire.reconnect_with_data(7779, 100, false), 100);
        wire.expect("1:101");
        wire.sends("101:201 101:301");
        wire.assert_outcomes(&[(Retransmission, 1), (NoHistory, 1), (Bundled, 1)]);
    });
}

/// Sets probe and retransmission timeouts of one second.
fn one_second() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::default()
    }
}

#[test]
fn restored_connection_is_bundled_as_before() {
    for sack in [true, false] {
        let setup = Setup {
            sack,
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101");
            wire.ack(101);
            wire.restore();
            wire.expect("100:100");
            wire.ack(101);
            match sack {
                true => wire.sends("101:201 101:301"),
                false => wire.sends("101:201 201:301"),
            }
        });
    }
}

#[test]
fn pure_ack_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(1, 0, 100);
        wire.expect("201:201");
        wire.sends("1:301");
    });
}

#[test]
fn duplicate_ack_with_sack_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(1, 100, 100);
        wire.expect("201:201");
        wire.sends("1:301");
    });
}

#[test]
fn fin_is_untouched() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.shutdown();
        wire.expect("201:201F");
    });
}

#[test]
fn fin_with_new_data_keeps_fin_after_bundle() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("1:201F");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
    });
}

#[test]
fn fin_with_old_data_is_untouched() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("1:201F");
        wire.ack(101);
        wire.expect("101:201F");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1), (Retransmission, 1)]);
    });
}

#[test]
fn keepalive_is_untouched() {
    Setup::default().run(|wire| {
        let one = 1i32.to_ne_bytes();
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), &one);
        wire.set_option((libc::SOL_SOCKET, libc::SO_KEEPALIVE), &one);
        wire.sends("1:101");
        wire.ack(101);
        wire.expect("100:100");
        wire.ack(101);
        wire.sends("101:201 101:301");
    });
}

#[test]
fn zero_window_probe_is_untouched() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.ack_window(101, 0);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(100));
        wire.expect("100:100");
        wire.ack_window(101, 65535);
        wire.expect("101:201");
        wire.sends("101:301");
    });
}

#[test]
fn window_probe_with_data_is_bundled_with_rest() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.ack_window(101, 128);
        wire.write(200);
        wire.expect("101:229");
        wire.ack_window(101, 65535);
        wire.expect("101:301");
    });
}

#[test]
fn urgent_data_is_untouched_and_clears_history() {
    for max_packets in [0, 1, 2] {
        Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(max_packets),
            ..limit_one()
        })
        .run(|wire| {
            wire.sends("1:101");
            wire.write_with(100, libc::MSG_OOB);
            wire.expect("101:201U");
            wire.sends("201:301 201:401");
            wire.assert_outcomes(&[
                (Bundled, 1),
                (NothingOutstanding, 1),
                (Flags, 1),
                (NoHistory, 1),
            ]);
        });
    }
}

#[test]
fn segments_during_shutdown_have_no_outcome() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.finish_while(|wire| {
            wire.sends("201:301 301:401");
            wire.ack(401);
        });
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
    });
}
