//! Packets of a device through memory shared with the kernel (`packet(7)`, version 2). Reading them
//! needs no system call, so a capture costs little even where calls are slow.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use pillion_bpf::host::socket_option;

use super::pcap::Frame;

/// A memory ring for all packets of a device, in both directions.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    length: usize,
    slot_bytes: usize,
    next: usize,
}

// SAFETY: only this value uses the memory, and the kernel does not depend on the thread.
unsafe impl Send for Ring {}

/// Memory for unread packets, in bytes.
const RING_BYTES: usize = 16 << 20;
/// Bytes of a block, the unit in which the kernel allocates the ring.
const BLOCK_BYTES: usize = 1 << 17;
/// Maximum bytes before a packet in its slot: header, address and padding.
const MAX_HEADER_BYTES: usize = 96;

impl Ring {
    /// Opens the ring of a device in the calling thread's network namespace, with `snap_len` bytes
    /// of each packet.
    pub(super) fn open(device: &str, snap_len: usize) -> io::Result<Self> {
        // Without a protocol, no packet arrives before the device is chosen.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let slot_bytes = (snap_len + MAX_HEADER_BYTES)
            .next_power_of_two()
            .clamp(256, BLOCK_BYTES);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (RING_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (RING_BYTES / slot_bytes) as u32,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket_option::set(&socket, (libc::SOL_PACKET, libc::PACKET_VERSION), &version)?;
        socket_option::set(&socket, (libc::SOL_PACKET, libc::PACKET_RX_RING), &request)?;
        // SAFETY: a new mapping of the socket's memory, of the length requested above.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        let memory = match memory {
            libc::MAP_FAILED => return Err(io::Error::last_os_error()),
            memory => NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
        };
        let ring = Self {
            socket,
            memory,
            length: RING_BYTES,
            slot_bytes,
            next: 0,
        };
        // Child processes do not use the memory and need not inherit it. SAFETY: the mapping made
        // above.
        let result =
            unsafe { libc::madvise(memory.as_ptr().cast(), RING_BYTES, libc::MADV_DONTFORK) };
        Errno::result(result)?;
        ring.bind(if_nametoindex(device)?)?;
        Ok(ring)
    }

    fn bind(&self, device: u32) -> io::Result<()> {
        // SAFETY: plain integers, for which zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = device.cast_signed();
        // SAFETY: the address lives across the call and has the length stated.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Passes the next packet, if there is one, to `callback`.
    pub(super) fn read<T>(&mut self, callback: impl FnOnce(Frame) -> T) -> Option<T> {
        let slot_bytes = self
            .memory
            .as_ptr()
            .wrapping_add(self.next * self.slot_bytes);
        // SAFETY: the status is the slot's first field, has its alignment, and lies within the
        // memory.
        let status = unsafe { AtomicU32::from_ptr(slot_bytes.cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel has filled the slot and does not touch it before its release below.
        let header = unsafe { slot_bytes.cast::<libc::tpacket2_hdr>().read() };
        let from = usize::from(header.tp_mac).min(self.slot_bytes);
        let stored = (header.tp_snaplen as usize).min(self.slot_bytes - from);
        // SAFETY: within the slot, and valid while `callback` runs.
        let bytes = unsafe { std::slice::from_raw_parts(slot_bytes.wrapping_add(from), stored) };
        let result = callback(Frame {
            at: (header.tp_sec, header.tp_nsec),
            bytes,
            length: header.tp_len,
        });
        status.store(0, Ordering::Release);
        self.next = (self.next + 1) % (self.length / self.slot_bytes);
        Some(result)
    }

    /// Returns the packets dropped for lack of a slot since the last call.
    pub(super) fn missed(&self) -> io::Result<u32> {
        Ok(socket_option::missed_packets(&self.socket)?)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; no reference to it remains.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
