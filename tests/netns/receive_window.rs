//! Receivers in the sender's kernel. They account memory by the size that the sender's packets
//! claim (`tcp_measure_rcv_mss()`). A bundle claims no more than its original segment, so the
//! receive window does not collapse at any device or MTU.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pillion_tests::{disable_scaling_ratio_clamp, set_option, tcp_info};

use crate::common::*;
use crate::devices::{Attach, Hosts};

const MTUS: [u32; 4] = [1280, 1500, 9000, 65535];
/// Message sizes near the points where a bundle's payload reaches its accounted size. Segments
/// account for 832 or 896 bytes more than their payload.
const SIZES: [usize; 8] = [1, 100, 277, 415, 448, 700, 831, 1180];
const MESSAGES: usize = 60;
const PAUSE: Duration = Duration::from_millis(2);

/// Device that joins the two hosts.
enum Device {
    Veth,
    Bridge,
    Macvlan,
}

impl Device {
    fn join(&self, hosts: &Hosts, mtu: u32) {
        let far_netns = hosts.far_netns();
        let commands = match self {
            Self::Veth => vec![
                format!("link add near mtu {mtu} type veth peer name far mtu {mtu} {far_netns}"),
                "link set near up".to_owned(),
            ],
            Self::Bridge => vec![
                format!("link add near mtu {mtu} type bridge"),
                format!("link add port mtu {mtu} type veth peer name far mtu {mtu} {far_netns}"),
                "link set port master near up".to_owned(),
                "link set near up".to_owned(),
            ],
            Self::Macvlan => vec![
                format!("link set a0 mtu {mtu}"),
                format!("link add link a0 name near mtu {mtu} type macvlan mode bridge"),
                format!("link add link a0 name far mtu {mtu} {far_netns} type macvlan mode bridge"),
                "link set near up".to_owned(),
            ],
        };
        for command in commands {
            hosts.ip(&command);
        }
        hosts.ip("address add 10.79.0.1/24 dev near");
        for arguments in ["address add 10.79.0.2/24 dev far", "link set far up"] {
            let status = hosts.far.command("ip").args(arguments.split(' ')).status();
            assert!(status.unwrap().success());
        }
    }
}

/// Returns the receiver's memory limits: expected bytes per round trip, and the maximum window.
fn window(receiver: &TcpStream) -> [u32; 2] {
    let info = tcp_info(receiver);
    [info.tcpi_rcv_space, info.tcpi_rcv_ssthresh]
}

fn send(mut stream: TcpStream, size: usize) {
    stream.set_nodelay(true).unwrap();
    for number in 0..MESSAGES {
        stream.write_all(&vec![number as u8; size]).unwrap();
        thread::sleep(PAUSE);
    }
}

/// Receives with delayed ACKs, so that data is outstanding at the next message.
fn receive(mut stream: TcpStream, size: usize) {
    let off = 0i32.to_ne_bytes();
    set_option(&stream, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &off);
    let before = window(&stream);
    let mut message = vec![0; size];
    for number in 0..MESSAGES {
        stream.read_exact(&mut message).unwrap();
        assert!(message.iter().all(|&byte| byte == number as u8));
    }
    let after = window(&stream);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after >= before / 2, "{size} B: {before} B became {after} B");
    }
}

/// Runs streams of all sizes concurrently, from the near host to the listener.
fn stream_all(hosts: &Hosts, listener: &TcpListener) {
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        for size in SIZES {
            let connect = move || TcpStream::connect(address).unwrap();
            let sender = hosts.near.enter(connect).unwrap();
            let (receiver, _) = listener.accept().unwrap();
            scope.spawn(move || send(sender, size));
            scope.spawn(move || receive(receiver, size));
        }
    });
}

fn stream_with_bundling(hosts: &Hosts, device: &str, listener: TcpListener) {
    for host in [&hosts.near, &hosts.far] {
        host.enter(disable_scaling_ratio_clamp).unwrap();
    }
    for copies in ["0", "2"] {
        let options = ["--max-packets", "0", "--copies", copies, "--dev", device];
        let attach = Attach::start(hosts, &options);
        stream_all(hosts, &listener);
        let stats = attach.stop();
        // A copy makes the receiver acknowledge at once, so that nothing is left to bundle.
        let redundant = match copies {
            "0" => &stats["outcomes"]["bundled"],
            _ => &stats["copies"],
        };
        assert!(redundant.as_u64() > Some(0), "{stats}");
    }
}

fn check_window(device: &Device) {
    for mtu in MTUS {
        let hosts = Hosts::create();
        device.join(&hosts, mtu);
        let listener = hosts.far.enter(|| TcpListener::bind("10.79.0.2:0"));
        stream_with_bundling(&hosts, "near", listener.unwrap().unwrap());
    }
}

#[test]
fn receiver_behind_veth_retains_window() {
    needs_root!();
    check_window(&Device::Veth);
}

#[test]
fn receiver_behind_bridge_retains_window() {
    needs_root!();
    check_window(&Device::Bridge);
}

#[test]
fn receiver_behind_macvlan_retains_window() {
    needs_root!();
    check_window(&Device::Macvlan);
}

#[test]
fn receiver_on_loopback_retains_window() {
    needs_root!();
    for mtu in MTUS {
        let hosts = Hosts::create();
        hosts.ip(&format!("link set lo mtu {mtu}"));
        let listener = hosts.near.enter(|| TcpListener::bind("127.0.0.1:0"));
        stream_with_bundling(&hosts, "lo", listener.unwrap().unwrap());
    }
}
