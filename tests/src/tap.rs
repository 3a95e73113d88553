//! The device between socket and peer: a TAP or TUN device, its addresses and its link header.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::host::{Offload, interface_request};

use crate::netns::{ip, sysctl};
use crate::setup::Setup;

/// What a device's packets begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header and so many VLAN tags, at most three. As the bundler sees it, the
    /// outermost one stands beside the packet, the others in its data.
    Ethernet {
        /// Number of VLAN tags, 0 to 3.
        tags: usize,
    },
    /// Packets begin with their IP header: a TUN device.
    Absent,
}

pub(crate) const ETHERNET_HEADER: usize = 14;
const ADDRESSES: usize = 12;

/// The VLAN tags, outermost first; `programs.bpf.c` adds them from the last on.
const TAGS: [[u8; 4]; 3] = [[0x88, 0xa8, 0, 7], [0x88, 0xa8, 0, 6], [0x81, 0x00, 0, 5]];

impl Link {
    /// The header that takes the place of an untagged Ethernet header.
    pub(crate) fn put(self, ethernet: &[u8]) -> Vec<u8> {
        match self {
            Self::Ethernet { tags } => {
                let (addresses, rest) = ethernet.split_at(ADDRESSES);
                [addresses, wire_tags(tags).as_slice(), rest].concat()
            }
            Self::Absent => ethernet[ETHERNET_HEADER..].to_vec(),
        }
    }

    /// The untagged Ethernet frame that corresponds to what is on the wire, or what is
    /// wrong with that.
    pub(crate) fn take(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Ethernet { tags } => {
                let tags = wire_tags(tags);
                let (addresses, rest) = bytes.split_at(ADDRESSES);
                match rest.strip_prefix(tags.as_slice()) {
                    Some(rest) => Ok([addresses, rest].concat()),
                    None => Err(format!("not the tags {tags:02x?}: {bytes:02x?}")),
                }
            }
            Self::Absent => {
                let kind: [u8; 2] = match bytes.first().map(|byte| byte >> 4) {
                    Some(4) => [0x08, 0x00],
                    Some(6) => [0x86, 0xdd],
                    _ => return Err(format!("no IP header: {bytes:02x?}")),
                };
                Ok([&[0; ADDRESSES], kind.as_slice(), bytes].concat())
            }
        }
    }
}

fn wire_tags(tags: usize) -> Vec<u8> {
    TAGS[TAGS.len() - tags..].concat()
}

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
pub(crate) fn create_device(setup: &Setup) -> Tap {
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

/// Bytes of `struct virtio_net_hdr`, in front of each frame.
const VNET_HEADER: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;

/// Offset of the checksum in a TCP header, in bytes.
const TCP_CHECKSUM: usize = 16;

/// A TAP or TUN device that says of each frame whether its checksum is still to be computed.
pub(crate) struct Tap {
    file: File,
    link: Link,
    in_pages: bool,
}

/// A frame as the kernel sent it, its checksum completed, its link header made that of
/// Ethernet without tags.
pub(crate) struct Frame {
    pub bytes: Vec<u8>,
    /// What was wrong with the frame's link header.
    pub fault: Option<String>,
    /// True if the kernel had left the checksum to the device.
    pub offloaded: bool,
}

impl Tap {
    /// Makes a device of the calling thread's network namespace; with `offload`, one that computes
    /// checksums; with `in_pages`, one that hands the kernel all behind the Ethernet header in pages
    /// beside the packet's own memory, as drivers do that copy nothing (`napi_gro_frags()`).
    pub fn open(name: &str, offload: bool, link: Link, in_pages: bool) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .expect("/dev/net/tun");
        create_tun(&file, name, link, in_pages).expect("a TAP device");
        let features = if offload { libc::TUN_F_CSUM } else { 0 };
        set_offload(&file, features).expect("checksum offload of the TAP device");
        Self {
            file,
            link,
            in_pages,
        }
    }

    /// The next frame, or `None` when none comes in time.
    pub fn read(&self, timeout: Duration) -> Option<Frame> {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, Some(timeout)).expect("the TAP device can be polled") == 0 {
            return None;
        }
        let mut bytes = vec![0; VNET_HEADER + usize::from(u16::MAX)];
        let length = (&self.file).read(&mut bytes).expect("a frame");
        bytes.truncate(length);
        let header: Vec<u8> = bytes.drain(..VNET_HEADER).collect();
        let offloaded = header[0] & NEEDS_CHECKSUM != 0;
        if offloaded {
            let field = |at| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
            complete_checksum(&mut bytes, field(6), field(8));
        }
        let (bytes, fault) = match self.link.take(&bytes) {
            Ok(bytes) => (bytes, None),
            Err(fault) => (bytes, Some(fault)),
        };
        Some(Frame {
            bytes,
            fault,
            offloaded,
        })
    }

    /// Hands a frame to the kernel as received.
    pub fn write(&self, frame: &[u8]) {
        self.write_behind([0; VNET_HEADER], frame);
    }

    /// Hands the kernel a frame that stands for several, each with so many bytes of payload, as
    /// after generic receive offload: their checksums have been found right. The TCP header begins
    /// at `tcp`, and the payload at `payload`, without VLAN tags.
    pub fn write_merged(&self, frame: &[u8], [tcp, payload]: [usize; 2], bytes: u16) {
        let kind = match frame[ETHERNET_HEADER] >> 4 {
            4 => TCP_OVER_IPV4,
            _ => TCP_OVER_IPV6,
        };
        let mut header = [0; VNET_HEADER];
        header[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
        let fields = [payload as u16, bytes, tcp as u16, TCP_CHECKSUM as u16];
        for (to, field) in header[2..].chunks_exact_mut(2).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        self.write_behind(header, frame);
    }

    fn write_behind(&self, header: [u8; VNET_HEADER], frame: &[u8]) {
        let frame = self.link.put(frame);
        let own = if self.in_pages { ETHERNET_HEADER } else { 0 };
        let parts = [&header[..], &frame[..own], &frame[own..]].map(IoSlice::new);
        let written = (&self.file)
            .write_vectored(&parts)
            .expect("the kernel takes the frame");
        assert_eq!(written, header.len() + frame.len());
    }
}

/// Completes a checksum as the device does: the sum from `start` on, the pseudo-header's sum
/// included that stands in the checksum's place, replaces it.
fn complete_checksum(bytes: &mut [u8], start: usize, offset: usize) {
    let mut sum: u32 = 0;
    for word in bytes[start..].chunks(2) {
        let low = word.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([word[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let check = !(sum as u16);
    bytes[start + offset..][..2].copy_from_slice(&check.to_be_bytes());
}

fn create_tun(tun: &File, name: &str, link: Link, in_pages: bool) -> io::Result<()> {
    let mut request = interface_request(name)?;
    let kind = match link {
        Link::Ethernet { .. } => libc::IFF_TAP,
        Link::Absent => libc::IFF_TUN,
    };
    let pages = if in_pages {
        libc::IFF_NAPI | libc::IFF_NAPI_FRAGS
    } else {
        0
    };
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | pages;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
    result(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

fn set_offload(tun: &File, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes an integer.
    result(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, features) })
}

fn result(returned: libc::c_int) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
