use std::os::fd::AsRawFd;
use std::ptr;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use pillion_bpf::host::interruption::retry;
use pillion_bpf::host::socket_option;

/// Bytes of a ring block, which is mapped as one piece.
const BLOCK: usize = 1 << 17;
/// Enough blocks that some are adjacent in memory.
const BLOCKS: usize = 128;

#[test]
#[ignore = "runs in the lab kernel"]
fn fork_succeeds_with_mapped_packet_ring() {
    let family = AddressFamily::Packet;
    let socket = socket(family, SockType::Raw, SockFlag::empty(), None).unwrap();
    let request = libc::tpacket_req {
        tp_block_size: BLOCK as u32,
        tp_block_nr: BLOCKS as u32,
        tp_frame_size: 2048,
        tp_frame_nr: (BLOCKS * BLOCK / 2048) as u32,
    };
    let ring = (libc::SOL_PACKET, libc::PACKET_RX_RING);
    socket_option::set(&socket, ring, &request).unwrap();
    // SAFETY: a new mapping of the socket's memory.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BLOCKS * BLOCK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            socket.as_raw_fd(),
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    for _ in 0..10 {
        let mut status = 0;
        // SAFETY: the child only exits; `status` lives across the call.
        let (child, ended) = unsafe {
            let child = Errno::result(libc::fork()).unwrap();
            if child == 0 {
                libc::_exit(0);
            }
            let wait = || Errno::result(libc::waitpid(child, &raw mut status, 0));
            (child, retry(wait).unwrap())
        };
        assert_eq!((ended, status), (child, 0));
    }
}
