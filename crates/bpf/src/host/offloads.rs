//! Offloads of a network device (ethtool's ioctl interface, which every kernel and device has).

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// One of these works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Computing the checksums of packets that it sends.
    TxChecksum,
    /// TCP segmentation (TSO).
    TcpSegmentation,
    /// Segmentation right before the device (GSO).
    GenericSegmentation,
    /// Joining segments that were received (GRO).
    GenericReceive,
}

impl Offload {
    /// All that make one packet of several segments, or several of one.
    pub const SEGMENTS: [Self; 3] = [
        Self::TcpSegmentation,
        Self::GenericSegmentation,
        Self::GenericReceive,
    ];

    /// The command that sets it (`ETHTOOL_STXCSUM` and others of `linux/ethtool.h`); the number
    /// before is the command that reads it.
    fn command(self) -> u32 {
        match self {
            Self::TxChecksum => 0x17,
            Self::TcpSegmentation => 0x1f,
            Self::GenericSegmentation => 0x24,
            Self::GenericReceive => 0x2c,
        }
    }

    /// Is this done by a device of the calling thread's network namespace?
    ///
    /// # Errors
    /// The kernel's, ENODEV without such a device.
    pub fn is_on(self, device: &str) -> io::Result<bool> {
        ethtool(device, self.command() - 1, 0).map(|answer| answer != 0)
    }

    /// Has a device of the calling thread's network namespace not do this.
    ///
    /// # Errors
    /// The kernel's: ENODEV without such a device, EOPNOTSUPP where it can do nothing else, EPERM
    /// without CAP_NET_ADMIN.
    pub fn switch_off(self, device: &str) -> io::Result<()> {
        ethtool(device, self.command(), 0).map(drop)
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn ethtool(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = Value { command, data };
    let mut request = interface_request(device)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    let kind = SockType::Datagram;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel reads a name and reads and writes the value that the request points to;
    // both live across the call.
    let result = unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &raw mut request) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(value.data),
    }
}

/// A zeroed request for a network device, for `ioctl(2)`.
///
/// # Errors
///
/// ENODEV for an invalid device name.
pub fn interface_request(device: &str) -> Result<libc::ifreq, Errno> {
    let is_name = device.len() < libc::IFNAMSIZ && !device.contains('\0');
    if !is_name {
        return Err(Errno::ENODEV);
    }
    // SAFETY: plain integers and a union of such, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::Uid;

    use super::*;

    #[test]
    fn device_offloads_are_read_and_disabled() {
        if !Uid::effective().is_root() {
            println!("left out without root");
            return;
        }
        // The loopback device of a namespace of its own has all of them on.
        let inside = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            for offload in Offload::SEGMENTS {
                assert!(offload.is_on("lo").unwrap(), "{offload:?}");
                offload.switch_off("lo").unwrap();
                assert!(!offload.is_on("lo").unwrap(), "{offload:?}");
            }
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap());
    }

    #[test]
    fn offload_of_missing_device_is_enodev() {
        for name in ["", "none", "a-name-that-is-too-long", "l\0o"] {
            let error = Offload::TxChecksum.is_on(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
