//! Device between socket and peer: a TAP or TUN device, its addresses and its link header.

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

/// Link header of a device's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Ethernet header with up to three VLAN tags. The bundler sees the outermost tag in the
    /// packet's metadata, and the others in its data.
    Ethernet {
        /// Number of VLAN tags, 0 to 3.
        tags: usize,
    },
    /// No link header: a TUN device.
    Absent,
}

pub(crate) const ETHERNET_HEADER: usize = 14;
const ADDRESSES: usize = 12;

/// VLAN tags, outermost first; `programs.bpf.c` adds them in reverse order.
const TAGS: [[u8; 4]; 3] = [[0x88, 0xa8, 0, 7], [0x88, 0xa8, 0, 6], [0x81, 0x00, 0, 5]];

impl Link {
    /// Replaces an untagged Ethernet header by this link header.
    pub(crate) fn add_header(self, ethernet: &[u8]) -> Vec<u8> {
        match self {
            Self::Ethernet { tags } => {
                let (addresses, rest) = ethernet.split_at(ADDRESSES);
                [addresses, wire_tags(tags).as_slice(), rest].concat()
            }
            Self::Absent => ethernet[ETHERNET_HEADER..].to_vec(),
        }
    }

    /// Replaces this link header by an untagged Ethernet header; an error describes a wrong header.
    pub(crate) fn remove_header(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Ethernet { tags } => {
                let tags = wire_tags(tags);
                let (addresses, rest) = bytes.split_at(ADDRESSES);
                match rest.strip_prefix(tags.as_slice()) {
                    Some(rest) => Ok([addresses, rest].concat()),
                    None => Err(format!("expected tags {tags:02x?}: {bytes:02x?}")),
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

/// Hardware addresses of the kernel, the peer, and the bridge port.
pub(crate) const LOCAL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// Name of the device that the bundler is attached to.
pub(crate) const TAP: &str = "tap0";
pub(crate) const BRIDGE: &str = "br0";

/// Room for headers that do not count towards the MSS, in bytes.
const HEADER_ROOM: u16 = 60;

/// Where a segment's TCP checksum is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// In the kernel, as its last step before the device.
    Kernel,
    /// In the device: the packet contains only the sum of the pseudo-header.
    Device,
    /// In the kernel, for a bridge without offload above the device: the checksum is complete
    /// before the bundler sees the packet.
    Bridge,
}

/// Creates the TAP device, sets its addresses and the peer's neighbour entry, and disables all
/// traffic that TCP does not need.
pub(crate) fn create_device(setup: &Setup) -> Tap {
    disable_background_traffic();
    sysctl("net.ipv4.tcp_ecn", if setup.ecn { "1" } else { "0" });
    // With a bridge too: a checksum left to the device would show that the bridge did not complete
    // it.
    let offload = setup.checksums != Checksums::Kernel;
    let tap = Tap::open(TAP, offload, setup.link, setup.received_in_pages);
    if setup.received_in_pages {
        let off = Offload::GenericReceive.switch_off(TAP);
        off.expect("generic receive offload is off");
    }
    let mtu = setup.mss + HEADER_ROOM;
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

/// Disables router solicitations and tail loss probes, and selects Reno.
fn disable_background_traffic() {
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
    let local_address = match local {
        IpAddr::V4(_) => format!("address add {local}/32 dev {device}"),
        // The kernel adds the local route itself, but later, and accepts no packets until then.
        IpAddr::V6(_) => format!(
            "address add {local}/128 dev {device} nodad\n\
             route add local {local} dev {device} table local"
        ),
    };
    ip(&format!(
        "{local_address}\n\
         {neighbour}\n\
         route add {route}\n"
    ));
}

/// Returns the route to the peer in the syntax of `ip route`.
pub(crate) fn route(setup: &Setup, device: &str) -> String {
    let (peer, window) = (setup.ip.peer(), setup.initial_window);
    let rto_min = match setup.rto_min.as_millis() {
        0 => String::new(),
        ms => format!("rto_min {ms}ms "),
    };
    // Without a prefix length the address is a host address, in both families.
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

/// TAP or TUN device with checksum metadata for each frame.
pub(crate) struct Tap {
    file: File,
    link: Link,
    in_pages: bool,
}

/// Frame from the kernel with a complete checksum and an untagged Ethernet header.
pub(crate) struct Frame {
    pub bytes: Vec<u8>,
    /// Defect of the frame's link header.
    pub fault: Option<String>,
    /// True if the kernel left the checksum to the device.
    pub offloaded: bool,
}

impl Tap {
    /// Creates a device in the calling thread's network namespace. With `offload` it computes
    /// checksums. With `in_pages` everything after the Ethernet header is in separate pages, as
    /// from drivers without copies (`napi_gro_frags()`).
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

    /// Returns the next frame, or `None` after the timeout.
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
        let (bytes, fault) = match self.link.remove_header(&bytes) {
            Ok(bytes) => (bytes, None),
            Err(fault) => (bytes, Some(fault)),
        };
        Some(Frame {
            bytes,
            fault,
            offloaded,
        })
    }

    /// Passes a received frame to the kernel.
    pub fn write(&self, frame: &[u8]) {
        self.write_with_header([0; VNET_HEADER], frame);
    }

    /// Passes a frame of several merged segments to the kernel, with `bytes` bytes of payload each,
    /// as after generic receive offload with verified checksums. `tcp` and `payload` are offsets
    /// without VLAN tags.
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
        self.write_with_header(header, frame);
    }

    fn write_with_header(&self, header: [u8; VNET_HEADER], frame: &[u8]) {
        let frame = self.link.add_header(frame);
        let linear = if self.in_pages { ETHERNET_HEADER } else { 0 };
        let parts = [&header[..], &frame[..linear], &frame[linear..]].map(IoSlice::new);
        let written = (&self.file)
            .write_vectored(&parts)
            .expect("the kernel accepts the frame");
        assert_eq!(written, header.len() + frame.len());
    }
}

/// Completes a checksum like the device: the sum from `start`, which includes the stored sum of the
/// pseudo-header, replaces it.
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
    // SAFETY: TUNSETIFF reads and writes one ifreq, which is valid during the call.
    io_result(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

fn set_offload(tun: &File, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes an integer.
    io_result(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, features) })
}

fn io_result(returned: libc::c_int) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
