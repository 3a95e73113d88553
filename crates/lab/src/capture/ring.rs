//! Packets from a device, through memory shared with the kernel (`packet(7)`, version 2): reading
//! them takes no system call, so that watching costs little even where calls are dear.

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

/// A ring of memory for all packets that pass a device, in both directions.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    length: usize,
    slot: usize,
    next: usize,
}

// SAFETY: the memory belongs to this value alone, and the kernel does not care for threads.
unsafe impl Send for Ring {}

/// Memory for packets that wait to be read, in bytes.
const LENGTH: usize = 16 << 20;
/// Bytes of a block, as the kernel hands the memory out.
const BLOCK: usize = 1 << 17;
/// Bytes that may stand before a packet in its slot: the header, an address, and padding.
const BEFORE_PACKET: usize = 96;

impl Ring {
    /// Opens the ring of a device of the calling thread's network namespace, with `snap` bytes of
    /// each packet.
    pub(super) fn open(device: &str, snap: usize) -> io::Result<Self> {
        // Without a protocol nothing comes before the device is chosen.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let slot = (snap + BEFORE_PACKET).next_power_of_two().clamp(256, BLOCK);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (LENGTH / BLOCK) as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: (LENGTH / slot) as u32,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket_option::set(&socket, (libc::SOL_PACKET, libc::PACKET_VERSION), &version)?;
        socket_option::set(&socket, (libc::SOL_PACKET, libc::PACKET_RX_RING), &request)?;
        // SAFETY: a new mapping of the socket's memory, of the length asked for above.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                LENGTH,
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
            length: LENGTH,
            slot,
            next: 0,
        };
        // Programs that this process starts have no use for the memory, and need not inherit it.
        // SAFETY: the mapping made above.
        let kept = unsafe { libc::madvise(memory.as_ptr().cast(), LENGTH, libc::MADV_DONTFORK) };
        Errno::result(kept)?;
        ring.bind(if_nametoindex(device)?)?;
        Ok(ring)
    }

    fn bind(&self, device: u32) -> io::Result<()> {
        // SAFETY: plain integers, for which zero is a value.
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

    /// Hands the next packet, if there is one, to `take`.
    pub(super) fn read<T>(&mut self, take: impl FnOnce(Frame) -> T) -> Option<T> {
        let slot = self.memory.as_ptr().wrapping_add(self.next * self.slot);
        // SAFETY: the status is the first field of the slot, aligned as it, and within the memory.
        let status = unsafe { AtomicU32::from_ptr(slot.cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel has filled the slot, and leaves it alone until it is given back.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let from = usize::from(header.tp_mac).min(self.slot);
        let kept = (header.tp_snaplen as usize).min(self.slot - from);
        // SAFETY: within the slot, for as long as `take` runs.
        let bytes = unsafe { std::slice::from_raw_parts(slot.wrapping_add(from), kept) };
        let taken = take(Frame {
            at: (header.tp_sec, header.tp_nsec),
            bytes,
            length: header.tp_len,
        });
        status.store(0, Ordering::Release);
        self.next = (self.next + 1) % (self.length / self.slot);
        Some(taken)
    }

    /// Packets that found no slot, since the last call.
    pub(super) fn missed(&self) -> io::Result<u32> {
        Ok(socket_option::missed_packets(&self.socket)?)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, of which no reference is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
