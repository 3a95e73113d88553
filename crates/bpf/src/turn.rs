//! A discipline that is empty may be removed, and filters are added to one that is there: of the
//! pillions in a network namespace, one at a time does either.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The turn's name, which one socket of the network namespace can have; it is free again once that
/// is closed, however its process ends.
const NAME: &[u8] = b"pillion-clsact";

/// The turn to change clsact in a network namespace; dropping it lets the next one.
#[derive(Debug)]
pub(crate) struct Turn {
    _socket: Option<UnixDatagram>,
}

impl Turn {
    /// Waits for the turn, but no longer than two seconds, and that once: anybody may have the
    /// name, and never let go.
    pub(crate) fn take() -> Self {
        const ATTEMPTS: u32 = 400;
        static IN_VAIN: AtomicBool = AtomicBool::new(false);
        let bind = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(NAME)?);
        for _ in 0..ATTEMPTS {
            match bind() {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    if IN_VAIN.load(Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                bound => {
                    return Self {
                        _socket: bound.ok(),
                    };
                }
            }
        }
        IN_VAIN.store(true, Ordering::Relaxed);
        Self { _socket: None }
    }
}
