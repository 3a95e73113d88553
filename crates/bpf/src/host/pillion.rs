//! pillion's socket options, as documented in `include/pillion.h`.
//!
//! Other programs may copy this module: it depends only on `libc`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

/// Ask for bundling: 1, or decline it: 0.
pub const BUNDLE: c_int = 0x7069_6c01;
/// Maximum number of previous segments in a bundle; 0: as many as the rules allow.
pub const MAX_PACKETS: c_int = 0x7069_6c02;
/// Maximum payload of a segment with its bundle, in bytes; 0: as the rules configure it.
pub const MAX_BYTES: c_int = 0x7069_6c03;
/// Option whose value is a set of [`ADAPTIVE`], [`WAIT_FOR_LOSS`] and [`REACT_CWR`].
pub const MODE: c_int = 0x7069_6c04;
/// Flag of [`MODE`]: bundle as many previous segments as losses demand, and no more.
pub const ADAPTIVE: c_int = 1;
/// Flag of [`MODE`]: do not bundle before the connection's first retransmission.
pub const WAIT_FOR_LOSS: c_int = 2;
/// Flag of [`MODE`]: each hidden loss reduces the congestion window.
pub const REACT_CWR: c_int = 4;
/// Option that gives [`Stats`]; it can only be read.
pub const STATS: c_int = 0x7069_6c05;

/// [`Stats::state`] of a connection that is not bundled.
pub const OFF: u32 = 0;
/// [`Stats::state`] of a connection that the rules bundle.
pub const BY_RULE: u32 = 1;
/// [`Stats::state`] of a connection bundled on request of its application.
pub const BY_APPLICATION: u32 = 2;
/// [`Stats::state`] of a connection whose bundling the rules refuse.
pub const REFUSED: u32 = 3;

/// Counters and state of a connection since pillion added it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments with data sent for the first time.
    pub segments: u64,
    /// Segments with new data that carried a bundle.
    pub bundled: u64,
    /// Bytes of payload sent for the first time.
    pub new_bytes: u64,
    /// Redundant bytes that were bundled.
    pub redundant_bytes: u64,
    /// Segments lost, and repaired by a bundle.
    pub hidden_losses: u64,
    /// Payload in bytes of the segments that were lost and repaired by a bundle.
    pub repaired_bytes: u64,
    /// Reductions of the congestion window for hidden losses.
    pub reactions: u64,
    /// Microseconds that bundles saved against retransmissions, at least.
    pub time_saved_us: u64,
    /// Whether the connection is bundled: [`OFF`], [`BY_RULE`], [`BY_APPLICATION`] or [`REFUSED`].
    pub state: u32,
    /// The last segment's outcome, an `enum pillion_last`; 1: it was bundled.
    pub last: u32,
    /// The rule that decided, the first being 1; 0: none.
    pub rule: u32,
    /// Packets in flight at this moment.
    pub in_flight: u32,
    /// Previous segments in a bundle that losses demand, for [`ADAPTIVE`].
    pub level: u32,
    /// Previous segments in a bundle at most, as granted; 0: no limit.
    pub max_packets: u32,
    /// Payload of a segment with its bundle at most, as granted, in bytes; 0: no limit.
    pub max_bytes: u32,
    /// Flags in force, a set as in [`MODE`].
    pub mode: u32,
}

/// Sets one of pillion's socket options.
///
/// # Errors
///
/// `ENOPROTOOPT` if no pillion is running, `EPERM` if its rules refuse, `EINVAL`.
pub fn set(socket: &impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the value lives across the call and has the length stated.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as socklen_t,
        )
    };
    check(result)
}

/// Reads one of pillion's socket options.
///
/// # Errors
///
/// `ENOPROTOOPT` if no pillion is running.
pub fn get(socket: &impl AsFd, option: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    read(socket, option, (&raw mut value).cast(), size_of_val(&value))?;
    Ok(value)
}

/// Reads the connection's counters. An older pillion leaves the last fields zero.
///
/// # Errors
///
/// `ENOPROTOOPT` if no pillion is running, `ENOTCONN` without a connection.
pub fn stats(socket: &impl AsFd) -> io::Result<Stats> {
    let mut stats = Stats::default();
    read(socket, STATS, (&raw mut stats).cast(), size_of_val(&stats))?;
    Ok(stats)
}

/// Reads a socket option; `value` points to `length` bytes of integers that may be written.
fn read(socket: &impl AsFd, option: c_int, value: *mut c_void, length: usize) -> io::Result<()> {
    let mut length = length as socklen_t;
    // SAFETY: both callers pass a valid value, and the length lives across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            value,
            &raw mut length,
        )
    };
    check(result)
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
