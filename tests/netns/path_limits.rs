//! Limits of a stream: small packets on the path, and its pacing rate.

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use pillion_bpf::Outcome::{Bundled, PacingLimit};
use pillion_lab::path::{Direction, PathConfig};
use pillion_tests::{HostPair, set_option, sysctl};

use crate::common::*;
use crate::stream::{Transport, read_to_end, send_spaced, test_data, transfer_over};

const ITT: Duration = Duration::from_millis(30);
const MESSAGES: usize = 60;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates two hosts with an RTT of 100 ms that drop packets above `max_bytes` bytes, including the
/// IP header.
fn mtu_path(max_bytes: usize) -> HostPair {
    let direction = Direction::delayed(Duration::from_millis(50));
    let pair = HostPair::create(&PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    });
    let rules = format!(
        "table ip small {{\nchain path {{\ntype filter hook prerouting priority -300\n\
         ip length > {max_bytes} drop\n}}\n}}\n"
    );
    let set = pair.receiver.namespace.run("nft", &["-f", "-"], &rules);
    let set = set.expect("nft runs");
    assert!(set.status.success(), "{}", stderr(&set));
    // Without this, TCP could merge writes while the window is open.
    let apart = || sysctl("net.ipv4.tcp_autocorking", "0");
    pair.sender.namespace.enter(apart).expect("enter");
    pair
}

fn check_arrival(message: usize, max_bytes: usize) {
    for transport in [Transport::Plain, Transport::Bundled] {
        for congestion in ["reno", "cubic"] {
            let data = test_data(MESSAGES * message);
            let sent = data.clone();
            let outcome = transfer_over(
                &mtu_path(max_bytes),
                transport,
                move |stream| {
                    setsockopt(stream, TcpCongestion, &OsString::from(congestion))
                        .expect("TCP_CONGESTION");
                    let mut stream = stream;
                    for part in sent.chunks(message) {
                        stream.write_all(part).expect("sent");
                        thread::sleep(ITT);
                    }
                },
                |stream| {
                    stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
                    read_to_end(stream)
                },
            );
            assert!(outcome.received == data, "{transport:?} {congestion}");
        }
    }
}

#[test]
fn messages_of_700_bytes_pass_path_of_1420() {
    needs_root!();
    check_arrival(700, 1420);
}

#[test]
fn messages_of_400_bytes_pass_path_of_700() {
    needs_root!();
    check_arrival(400, 700);
}

#[test]
fn messages_of_560_bytes_pass_path_of_1100() {
    needs_root!();
    check_arrival(560, 1100);
}

/// Bytes a second. The stream itself needs 20,000, plus 10,400 for headers.
const RATE: u32 = 40_000;
const PACED_SIZE: usize = 100;
const PACED_MESSAGES: usize = 800;
const ETHERNET: u64 = 14;

#[test]
fn bundles_do_not_exceed_pacing_rate() {
    needs_root!();
    let pair = clean_pair();
    let data = test_data(PACED_MESSAGES * PACED_SIZE);
    let sent = data.clone();
    let started = Instant::now();
    let outcome = transfer_over(
        &pair,
        Transport::Bundled,
        move |stream| {
            let rate = RATE.to_ne_bytes();
            set_option(stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate);
            let started = Instant::now();
            send_spaced(stream, &sent, PACED_SIZE, 0);
            started.elapsed().as_secs_f64()
        },
        read_to_end,
    );
    assert!(outcome.received == data, "after {:?}", started.elapsed());
    let volume = pair.path.stats().forward.received;
    let rate = (volume.bytes - ETHERNET * volume.packets) as f64 / outcome.sent;
    let counters = outcome.counters.expect("a bundler");
    println!("{rate:.0} bytes a second, {:?}", counters.outcomes);
    // One bundle may leave before the limit is known to be reached.
    assert!(rate < f64::from(RATE) * 1.05, "{rate:.0} bytes a second");
    assert!(counters.of(Bundled) > 0 && counters.of(PacingLimit) > 0);
}
