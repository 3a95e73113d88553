//! Socket options that nix does not have.

use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, socklen_t};
use nix::errno::Errno;

/// An option's level and its number.
pub type Name = (c_int, c_int);

/// Sets a socket option to the bytes of a value.
///
/// # Errors
/// The kernel's.
pub fn set(socket: impl AsFd, (level, number): Name, value: &impl ?Sized) -> Result<(), Errno> {
    // SAFETY: the value lives across the call, which reads no more bytes than it has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            number,
            (&raw const *value).cast(),
            size_of_val(value) as socklen_t,
        )
    };
    Errno::result(result).map(drop)
}

/// Reads a socket option of `BYTES` bytes, padded with 0.
///
/// # Errors
///
/// The kernel's.
pub fn get<const BYTES: usize>(socket: impl AsFd, name: Name) -> Result<[u8; BYTES], Errno> {
    let mut value = [0; BYTES];
    read(socket, name, &mut value).map(|_| value)
}

/// Reads a socket option into `value`, as much as fits. Returns the length that the kernel reports,
/// in bytes, which may be larger.
///
/// # Errors
///
/// The kernel's.
pub fn read(socket: impl AsFd, (level, number): Name, value: &mut [u8]) -> Result<usize, Errno> {
    let mut length = value.len() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the value, and a number to `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            number,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result).map(|_| length as usize)
}

/// Packets that found no room in a packet socket, since the last call.
///
/// # Errors
/// The kernel's.
pub fn missed_packets(socket: impl AsFd) -> Result<u32, Errno> {
    // `struct tpacket_stats`: packets that came, and those dropped.
    let counts = get(socket, (libc::SOL_PACKET, libc::PACKET_STATISTICS))?;
    let [_, _, _, _, dropped @ ..]: [u8; 8] = counts;
    Ok(u32::from_ne_bytes(dropped))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn socket_option_reads_back() {
        const PRIORITY: Name = (libc::SOL_SOCKET, libc::SO_PRIORITY);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set(&socket, PRIORITY, &5).unwrap();
        assert_eq!(get(&socket, PRIORITY), Ok(5i32.to_ne_bytes()));
        assert_eq!(get(&socket, PRIORITY), Ok([5, 0, 0, 0, 0, 0]));
        let mut room = [0xee; 9];
        assert_eq!(read(&socket, PRIORITY, &mut room), Ok(4));
        assert_eq!(room[4..], [0xee; 5]);
        let unknown = (libc::SOL_SOCKET, -1);
        assert_eq!(set(&socket, unknown, &5), Err(Errno::ENOPROTOOPT));
        assert_eq!(get::<4>(&socket, unknown), Err(Errno::ENOPROTOOPT));
    }
}
