//! A path that silently drops large packets does not stop a stream.

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use pillion_lab::path::{Direction, PathConfig};
use pillion_tests::{HostPair, sysctl};

use crate::common::*;
use crate::stream::{Carriage, carry_over, content, read_to_end};

const ITT: Duration = Duration::from_millis(30);
const MESSAGES: usize = 60;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates two hosts with an RTT of 100 ms that drop packets above `largest` bytes, including the
/// IP header.
fn small_path(largest: usize) -> HostPair {
    let direction = Direction::delayed(Duration::from_millis(50));
    let pair = HostPair::create(&PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    });
    let rules = format!(
        "table ip small {{\nchain path {{\ntype filter hook prerouting priority -300\n\
         ip length > {largest} drop\n}}\n}}\n"
    );
    let set = pair.receiver.namespace.run("nft", &["-f", "-"], &rules);
    let set = set.expect("nft runs");
    assert!(set.status.success(), "{}", stderr(&set));
    // Without this, TCP could merge writes while the window is open.
    let apart = || sysctl("net.ipv4.tcp_autocorking", "0");
    pair.sender.namespace.enter(apart).expect("enter");
    pair
}

fn arrives_whole(message: usize, largest: usize) {
    for carriage in [Carriage::Plain, Carriage::Bundled] {
        for congestion in ["reno", "cubic"] {
            let data = content(MESSAGES * message);
            let sent = data.clone();
            let outcome = carry_over(
                &small_path(largest),
                carriage,
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
            assert!(outcome.received == data, "{carriage:?} {congestion}");
        }
    }
}

#[test]
fn messages_of_700_bytes_pass_a_path_of_1420() {
    needs_root!();
    arrives_whole(700, 1420);
}

#[test]
fn messages_of_400_bytes_pass_a_path_of_700() {
    needs_root!();
    arrives_whole(400, 700);
}

#[test]
fn messages_of_560_bytes_pass_a_path_of_1100() {
    needs_root!();
    arrives_whole(560, 1100);
}
