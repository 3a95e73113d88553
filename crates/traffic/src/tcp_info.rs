use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use serde::Serialize;

/// What the kernel counted for one connection (`TCP_INFO`). A field that the running kernel does
/// not report is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    /// Segments sent again, of all kinds (`tcpi_total_retrans`).
    pub retransmissions: Option<u32>,
    /// Payload bytes sent again (Linux 4.19).
    pub bytes_retrans: Option<u64>,
    /// Segments sent, with and without payload (Linux 4.2).
    pub segs_out: Option<u32>,
    /// Payload bytes sent, retransmissions included (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u32>,
    /// Smallest recent round-trip time in microseconds; `None` also without any sample (Linux 4.6).
    pub min_rtt_us: Option<u32>,
    /// Congestion window in segments.
    pub cwnd: Option<u32>,
}

impl TcpInfo {
    /// Reads the counters of a TCP socket.
    pub(crate) fn read(socket: impl AsFd) -> Result<Self, Errno> {
        let mut buffer = [0; 512];
        Ok(Self::parse(read_raw(socket, &mut buffer)?))
    }

    /// Offsets are those of `struct tcp_info` in `linux/tcp.h`, which only ever grows at its end.
    fn parse(info: &[u8]) -> Self {
        let u32_at = |offset| info.get(offset..offset + 4)?.try_into().ok();
        let u64_at = |offset| info.get(offset..offset + 8)?.try_into().ok();
        let u32_at = |offset: usize| u32_at(offset).map(u32::from_ne_bytes);
        let u64_at = |offset: usize| u64_at(offset).map(u64::from_ne_bytes);
        Self {
            retransmissions: u32_at(100),
            bytes_retrans: u64_at(208),
            segs_out: u32_at(136),
            bytes_sent: u64_at(200),
            rtt_us: u32_at(68),
            min_rtt_us: u32_at(148).filter(|&rtt| rtt != u32::MAX),
            cwnd: u32_at(80),
        }
    }
}

/// The part of `buffer` that the kernel filled.
fn read_raw(socket: impl AsFd, buffer: &mut [u8; 512]) -> Result<&[u8], Errno> {
    let mut len = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `buffer`, and their number to `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buffer.as_mut_ptr().cast(),
            &mut len,
        )
    };
    Errno::result(result)?;
    Ok(&buffer[..len as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn counters_are_those_of_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.write_all(&[0; 1000]).unwrap();
        there.read_exact(&mut [0; 1000]).unwrap();
        let info = TcpInfo::read(&here).unwrap();
        assert!(info.rtt_us.is_some() && info.cwnd > Some(0));
        assert!(info.bytes_sent.is_none_or(|bytes| bytes >= 1000));
    }

    #[test]
    fn fields_beyond_what_the_kernel_returned_are_none() {
        let info = TcpInfo::parse(&[0; 104]);
        assert_eq!((info.retransmissions, info.segs_out), (Some(0), None));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }
}
