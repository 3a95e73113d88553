use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interface_request;
use pillion_bpf::host::interruption::poll;

use crate::link::{ETHERNET_HEADER, Link};

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
        create(&file, name, link, in_pages).expect("a TAP device");
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

fn create(tun: &File, name: &str, link: Link, in_pages: bool) -> io::Result<()> {
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
