use std::net::Ipv4Addr;

use pillion_bpf::host::Offload;

use super::Node;
use crate::Error;

/// A device of a machine: one end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) node: &'a Node,
    pub(super) device: &'a str,
}

/// Makes the machine that all these cables lead to, by their second ends, a bridge of them. Cables have
/// no queue of their own; their other ends are down yet.
pub(super) fn bridge(cables: &[[Port; 2]]) -> Result<(), Error> {
    let Some([_, hub]) = cables.first() else {
        return Ok(());
    };
    // The kernel wants a new device's name to be free where it is told to make it elsewhere, too.
    let cabled = cables
        .iter()
        .map(|[one, other]| format!("link add {} type veth peer name {}", one.end(), other.end()));
    let bridge = "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0";
    let ports = cables.iter();
    let ports = ports.map(|[_, port]| format!("link set {} master bridge up", port.device));
    let up = "link set bridge up".to_owned();
    let lines = cabled.chain([bridge.to_owned()]).chain(ports).chain([up]);
    hub.node.set_up(lines)?;
    let mut ends = cables.iter().flatten();
    ends.try_for_each(|end| end.switch_offloads_off())
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
        let off = |device: &str| {
            let mut offloads = Offload::SEGMENTS.iter();
            offloads.try_for_each(|offload| offload.switch_off(device))
        };
        let device = self.device.to_owned();
        let action = "have devices leave segments as they are";
        let done = self.node.enter(move || off(&device))?;
        done.map_err(|source| Error::System { action, source })
    }

    /// An end of a cable, in the words of `ip`. Every segment is a packet of its own there, see
    /// [`Port::send_whole_segments`].
    fn end(self) -> String {
        let namespace = self.node.namespace.path();
        let (device, namespace) = (self.device, namespace.display());
        format!("{device} netns {namespace} txqueuelen 0 gso_max_segs 1")
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

/// The hardware address of the device that has this address.
pub(super) fn hardware(address: Ipv4Addr) -> String {
    let [_, _, network, host] = address.octets();
    format!("02:77:00:00:{network:02x}:{host:02x}")
}
