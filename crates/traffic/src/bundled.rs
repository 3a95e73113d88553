use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use serde::Serialize;

/// What pillion counted of a connection that it bundles (`struct pillion_stats` of
/// `include/pillion.h`, docs/socket-option.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bundled {
    /// Segments with data sent for the first time.
    pub segments: u64,
    /// Segments that carried a bundle.
    pub bundled: u64,
    /// Payload bytes sent for the first time.
    pub new_bytes: u64,
    /// Payload bytes that rode along.
    pub redundant_bytes: u64,
    /// Segments that were lost, and that bundles repaired.
    pub hidden_losses: u64,
    /// Payload bytes of these.
    pub repaired_bytes: u64,
    /// Reductions of the congestion window for them.
    pub reactions: u64,
}

const STATS: libc::c_int = 0x7069_6c05;

/// `struct pillion_stats`, as far as it is used: eight counts, and how the connection stands.
type Stats = [u64; 9];

impl Bundled {
    /// Asks pillion about a socket; `None` where there is no pillion, or it leaves the socket
    /// alone.
    pub(crate) fn read(socket: impl AsFd) -> Option<Self> {
        let mut stats = Stats::default();
        let mut length = size_of::<Stats>() as libc::socklen_t;
        // SAFETY: at most `length` bytes are written to `stats`, for which any bytes are values.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                STATS,
                stats.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        Errno::result(result).ok()?;
        Self::of(&stats).filter(|_| length as usize >= size_of::<Stats>())
    }

    fn of(stats: &Stats) -> Option<Self> {
        const BY_RULE: u32 = 1;
        const BY_APPLICATION: u32 = 2;
        let [
            segments,
            bundled,
            new_bytes,
            redundant_bytes,
            hidden_losses,
            repaired_bytes,
            reactions,
            _saved_us,
            standing,
        ] = *stats;
        let standing = u32::from_ne_bytes(*standing.to_ne_bytes().first_chunk()?);
        [BY_RULE, BY_APPLICATION]
            .contains(&standing)
            .then_some(Self {
                segments,
                bundled,
                new_bytes,
                redundant_bytes,
                hidden_losses,
                repaired_bytes,
                reactions,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_is_bundled_has_counts() {
        let standing = |standing: u32, last: u32| {
            let [a, b] = [standing, last].map(u32::to_ne_bytes);
            let both: [u8; 8] = [a, b].concat().try_into().unwrap();
            Bundled::of(&[1, 2, 3, 4, 5, 6, 7, 8, u64::from_ne_bytes(both)])
        };
        for (stands, bundled) in [(0, false), (1, true), (2, true), (3, false)] {
            assert_eq!(standing(stands, 9).is_some(), bundled);
        }
        assert_eq!(standing(1, 0).map(|it| it.hidden_losses), Some(5));
    }

    #[test]
    fn without_pillion_there_are_no_counts() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(Bundled::read(&listener), None);
    }
}
