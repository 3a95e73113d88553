use std::net::Ipv4Addr;

use super::Place;
use crate::Error;

/// An end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) place: &'a Place,
    pub(super) device: &'a str,
}

/// Joins two machines by a cable.
pub(super) fn join(one: Port, other: Port) -> Result<(), Error> {
    one.place.run(&format!(
        "ip link add {} type veth peer name {} netns {}",
        one.device,
        other.device,
        other.place.namespace.path().display(),
    ))?;
    one.prepare()?;
    other.prepare()?;
    let without_queue = |port: Port| {
        let command = format!("ip link set {} txqueuelen 0", port.device);
        port.place.run(&command).map(drop)
    };
    without_queue(one)?;
    without_queue(other)
}

impl Port<'_> {
    /// Has every segment of TCP pass as a packet of its own (thesis, appendix B): neither joined
    /// nor left whole for the device to cut.
    pub(super) fn prepare(self) -> Result<(), Error> {
        let Self { place, device } = self;
        place.run(&format!(
            "ethtool -K {device} tso off gso off gro off lro off"
        ))?;
        place.run(&format!("ip link set {device} gso_max_segs 1"))?;
        Ok(())
    }

    /// Gives it its hardware address, and switches it on.
    pub(super) fn raise(self, hardware: &str) -> Result<(), Error> {
        let Self { place, device } = self;
        place.run(&format!("ip link set {device} address {hardware} up"))?;
        Ok(())
    }

    /// Gives it its address in a network of 254.
    pub(super) fn address(self, address: Ipv4Addr) -> Result<(), Error> {
        let command = format!("ip address add {address}/24 dev {}", self.device);
        self.place.run(&command).map(drop)
    }

    /// Makes a neighbour known, so that no question can get lost.
    pub(super) fn meet(self, address: Ipv4Addr) -> Result<(), Error> {
        let Self { place, device } = self;
        let hardware = hardware(address);
        place.run(&format!(
            "ip neighbour add {address} lladdr {hardware} dev {device} nud permanent"
        ))?;
        Ok(())
    }
}

/// Ports of a bridge.
pub(super) fn bridge(place: &Place, ports: &[&str]) -> Result<(), Error> {
    place.run("ip link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0")?;
    for port in ports {
        place.run(&format!("ip link set {port} master bridge up"))?;
    }
    place.run("ip link set bridge up").map(drop)
}

/// The hardware address of whoever has an address.
pub(super) fn hardware(address: Ipv4Addr) -> String {
    let [_, _, network, host] = address.octets();
    format!("02:77:00:00:{network:02x}:{host:02x}")
}
