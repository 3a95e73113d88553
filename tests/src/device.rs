use std::net::IpAddr;

use pillion_bpf::host::Offload;

use crate::link::Link;
use crate::netns::{ip, sysctl};
use crate::setup::Setup;
use crate::tap::Tap;

/// Hardware addresses: the local endpoint's, the peer's, and the port's of a bridge.
pub(crate) const LOCAL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// The name of the device that the bundler stands at.
pub(crate) const TAP: &str = "tap0";
pub(crate) const BRIDGE: &str = "br0";

/// Bytes of room for the headers that do not count towards the MSS.
const HEADERS: u16 = 60;

/// Who computes a segment's TCP checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// The kernel computes it, in its last step before the device.
    Kernel,
    /// The device computes it: only the pseudo-header's sum stands in the packet.
    Device,
    /// A bridge without offload, of which the device is a port, has the kernel compute it: it is
    /// complete before the bundler sees the packet.
    Bridge,
}

/// Makes the TAP device, gives this endpoint its address and the peer an entry, and so sets the
/// namespace that TCP does nothing of its own accord.
pub(crate) fn create(setup: &Setup) -> Tap {
    quieten();
    sysctl("net.ipv4.tcp_ecn", if setup.ecn { "1" } else { "0" });
    // With a bridge as well: a checksum left to the device would prove that the bridge
    // had not completed it.
    let offload = setup.checksums != Checksums::Kernel;
    let tap = Tap::open(TAP, offload, setup.link, setup.received_in_pages);
    if setup.received_in_pages {
        let off = Offload::GenericReceive.switch_off(TAP);
        off.expect("nothing gathers the headers");
    }
    let mtu = setup.mss + HEADERS;
    if setup.checksums != Checksums::Bridge {
        let mac = match setup.link {
            Link::Ethernet { .. } => format!("address {}", mac(LOCAL_MAC)),
            Link::Absent => String::new(),
        };
        ip(&format!("link set {TAP} {mac} mtu {mtu} up\n"));
        address(setup, TAP);
        return tap;
    }
    let (bridge, port) = (mac(LOCAL_MAC), mac(PORT_MAC));
    ip(&format!(
        "link set {TAP} address {port} mtu {mtu} up\n\
         link add {BRIDGE} address {bridge} mtu {mtu} type bridge\n\
         link set {TAP} master {BRIDGE}\n\
         link set {BRIDGE} up\n"
    ));
    let off = Offload::TxChecksum.switch_off(BRIDGE);
    off.expect("the bridge leaves checksums to the kernel");
    address(setup, BRIDGE);
    tap
}

/// Keeps the kernel quiet: no router solicitations, no tail loss probe, Reno.
fn quieten() {
    for (name, value) in [
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv4.tcp_congestion_control", "reno"),
        ("net.ipv4.tcp_early_retrans", "0"),
    ] {
        sysctl(name, value);
    }
}

fn address(setup: &Setup, device: &str) {
    let (local, peer) = (setup.ip.local(), setup.ip.peer());
    let neighbour = match setup.link {
        Link::Ethernet { .. } => {
            let mac = mac(PEER_MAC);
            format!("neighbour add {peer} lladdr {mac} nud permanent dev {device}")
        }
        Link::Absent => String::new(),
    };
    let route = route(setup, device);
    let mine = match local {
        IpAddr::V4(_) => format!("address add {local}/32 dev {device}"),
        // The kernel adds the local route itself, but in its own time, and takes nothing
        // in until then.
        IpAddr::V6(_) => format!(
            "address add {local}/128 dev {device} nodad\n\
             route add local {local} dev {device} table local"
        ),
    };
    ip(&format!(
        "{mine}\n\
         {neighbour}\n\
         route add {route}\n"
    ));
}

/// The route to the peer, as `ip route` is told it.
pub(crate) fn route(setup: &Setup, device: &str) -> String {
    let (peer, window) = (setup.ip.peer(), setup.initial_window);
    let rto_min = match setup.rto_min.as_millis() {
        0 => String::new(),
        ms => format!("rto_min {ms}ms "),
    };
    // No length of a prefix stands for a whole address, in either family.
    format!("{peer} dev {device} {rto_min}initcwnd {window}")
}

pub(crate) fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}
