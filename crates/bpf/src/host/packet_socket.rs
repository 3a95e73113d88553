//! Sockets that see all packets of a device (`packet(7)`).

use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::host::socket_option;

/// Packets that found no room in a packet socket, since the last call.
///
/// # Errors
/// The kernel's.
pub fn missed(socket: impl AsFd) -> Result<u32, Errno> {
    // `struct tpacket_stats`: packets that came, and those dropped.
    let counts = socket_option::get(socket, (libc::SOL_PACKET, libc::PACKET_STATISTICS))?;
    let [_, _, _, _, dropped @ ..]: [u8; 8] = counts;
    Ok(u32::from_ne_bytes(dropped))
}
