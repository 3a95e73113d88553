use std::net::Ipv4Addr;

use super::Node;
use crate::Error;

/// A device of a machine: one end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) node: &'a Node,
    pub(super) device: &'a str,
}

/// Joins two machines by a cable, whose ends have no queue of their own and are down yet.
pub(super) fn join(one: Port, other: Port) -> Result<(), Error> {
    // Every segment is a packet of its own, see `Port::send_whole_segments`.
    let end = "txqueuelen 0 gso_max_segs 1";
    one.node.run(&format!(
        "ip link add {} {end} type veth peer name {} {end} netns {}",
        one.device,
        other.device,
        other.node.namespace.path().display(),
    ))?;
    one.switch_offloads_off()?;
    other.switch_offloads_off()
}

impl Port<'_> {
    /// Has every segment of TCP pass as a packet of its own (thesis, appendix B): neither joined
    /// nor left whole for the device to cut.
    pub(super) fn send_whole_segments(self) -> Result<(), Error> {
        self.switch_offloads_off()?;
        let command = format!("ip link set {} gso_max_segs 1", self.device);
        self.node.run(&command).map(drop)
    }

    fn switch_offloads_off(self) -> Result<(), Error> {
        let command = format!("ethtool -K {} tso off gso off gro off lro off", self.device);
        self.node.run(&command).map(drop)
    }

    /// Commands of `ip` that give the device this address, in a network of 254, and switch it on.
    pub(super) fn raise(self, address: Ipv4Addr) -> [String; 2] {
        let (device, hardware) = (self.device, hardware(address));
        [
            format!("link set {device} address {hardware} up"),
            format!("address add {address}/24 dev {device}"),
        ]
    }

    /// A command of `ip` that makes a neighbour known, so that no question can get lost.
    pub(super) fn meet(self, address: Ipv4Addr) -> String {
        let (device, hardware) = (self.device, hardware(address));
        format!("neighbour add {address} lladdr {hardware} dev {device} nud permanent")
    }
}

/// Makes a bridge of these devices of a machine.
pub(super) fn bridge(node: &Node, ports: &[&str]) -> Result<(), Error> {
    let bridge = "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0";
    let mut lines = vec![bridge.to_owned()];
    let ports = ports.iter();
    lines.extend(ports.map(|port| format!("link set {port} master bridge up")));
    lines.push("link set bridge up".to_owned());
    node.set_up(lines)
}

/// The hardware address of the device that has this address.
pub(super) fn hardware(address: Ipv4Addr) -> String {
    let [_, _, network, host] = address.octets();
    format!("02:77:00:00:{network:02x}:{host:02x}")
}
