//! Two hosts with a dedicated path between them.

use std::net::Ipv4Addr;

use pillion_lab::Namespace;
use pillion_lab::path::{Path, PathConfig, Tap};
use pillion_lab::testbed::disable_ipv6;

/// Sender and receiver with a dedicated path between them.
#[derive(Debug)]
pub struct HostPair {
    /// The host that sends data.
    pub sender: Host,
    /// The host that receives data.
    pub receiver: Host,
    /// The path between the two hosts.
    pub path: Path,
}

/// A network namespace with one device, `tap0`.
#[derive(Debug)]
pub struct Host {
    /// The host's network namespace.
    pub namespace: Namespace,
    /// The host's IPv4 address.
    pub address: Ipv4Addr,
}

/// Name of every host's device.
const DEVICE: &str = "tap0";

impl HostPair {
    /// Creates both hosts and the path.
    #[must_use]
    pub fn create(path: &PathConfig) -> Self {
        let (sender, sender_tap) = Host::create(1);
        let (receiver, receiver_tap) = Host::create(2);
        let path = Path::start(sender_tap, receiver_tap, path).expect("the path");
        Self {
            sender,
            receiver,
            path,
        }
    }
}

impl Host {
    /// Creates host 1 or 2 of a pair, and the tap for the path's end. Static hardware addresses
    /// avoid neighbour discovery, whose packets could get lost.
    fn create(number: u8) -> (Self, Tap) {
        let namespace = Namespace::create().expect("a namespace; it needs root");
        let tap = namespace.enter(|| {
            disable_ipv6().expect("IPv6 off");
            Tap::open(DEVICE).expect("a TAP device")
        });
        let host = Self {
            namespace,
            address: address(number),
        };
        let (own_address, hardware) = (host.address, hardware_address(number));
        let peer = 3 - number;
        let (other, peer_hardware) = (address(peer), hardware_address(peer));
        for command in [
            "link set lo up".to_owned(),
            format!("link set {DEVICE} address {hardware}"),
            format!("link set {DEVICE} up"),
            format!("address add {own_address}/24 dev {DEVICE}"),
            format!("neighbour add {other} lladdr {peer_hardware} dev {DEVICE}"),
        ] {
            host.ip(&command);
        }
        (host, tap.expect("enter"))
    }

    fn ip(&self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let output = self.namespace.run("ip", &words, "").expect("ip runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {command}: {message}");
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

fn hardware_address(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}
