use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::host::socket_option;

/// Bytes of room for the kernel's answer: more than any kernel writes.
const ROOM: usize = 512;

/// The kernel's information about a TCP connection (`TCP_INFO`). A field that the running kernel
/// does not have is `None`.
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo<'a>(&'a [u8]);

/// Makes the methods that read fields, by their offsets in `struct tcp_info` of `linux/tcp.h`,
/// which only ever grows at its end.
macro_rules! fields {
    ($($(#[doc = $meaning:literal])+ $name:ident: $kind:ty = $offset:literal,)+) => {
        $($(#[doc = $meaning])+
        #[must_use]
        pub fn $name(self) -> Option<$kind> {
            let bytes = self.0.get($offset..$offset + size_of::<$kind>())?;
            Some(<$kind>::from_ne_bytes(bytes.try_into().ok()?))
        })+
    };
}

impl<'a> TcpInfo<'a> {
    /// Takes `TCP_INFO` as the kernel wrote it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Asks the kernel for a socket's `TCP_INFO`, and does something with it.
    ///
    /// # Errors
    /// The kernel's, as of a socket that is not TCP's.
    pub fn read<T>(socket: impl AsFd, work: impl FnOnce(TcpInfo) -> T) -> Result<T, Errno> {
        let mut bytes = [0u8; ROOM];
        let length = socket_option::read(socket, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut bytes)?;
        Ok(work(TcpInfo(&bytes[..length])))
    }

    fields! {
        /// State of congestion control (`enum tcp_ca_state`).
        ca_state: u8 = 1,
        /// Doublings of the retransmission time-out.
        backoff: u8 = 4,
        /// Retransmission time-out in microseconds, backed off.
        rto_us: u32 = 8,
        /// Maximum segment size in bytes of payload.
        snd_mss: u32 = 16,
        /// Packets sent and unacknowledged.
        unacked: u32 = 24,
        /// Packets that SACK reports, sent and unacknowledged.
        sacked: u32 = 28,
        /// Packets counted as lost, sent and unacknowledged.
        lost: u32 = 32,
        /// Packets retransmitted and unacknowledged.
        retrans: u32 = 36,
        /// Smoothed round-trip time in microseconds.
        rtt_us: u32 = 68,
        /// Mean deviation of the round-trip time in microseconds.
        rttvar_us: u32 = 72,
        /// Slow start threshold in packets; `0x7fff_ffff` while there is none.
        snd_ssthresh: u32 = 76,
        /// Congestion window in packets.
        snd_cwnd: u32 = 80,
        /// Segments retransmitted so far, for whatever reason.
        total_retrans: u32 = 100,
        /// Bytes of payload acknowledged so far (Linux 4.1; the SYN counts as one).
        bytes_acked: u64 = 120,
        /// Bytes of payload received so far (Linux 4.1).
        bytes_received: u64 = 128,
        /// Segments sent so far, with and without payload (Linux 4.2).
        segs_out: u32 = 136,
        /// Bytes written by the application and not sent yet (Linux 4.6).
        notsent_bytes: u32 = 144,
        /// Rate of delivery in bytes per second, measured last (Linux 4.9).
        delivery_rate: u64 = 160,
        /// Packets delivered so far, as TCP counts them (Linux 4.18).
        delivered: u32 = 192,
        /// Bytes of payload sent so far, retransmissions included (Linux 4.19).
        bytes_sent: u64 = 200,
        /// Bytes of payload retransmitted so far (Linux 4.19).
        bytes_retrans: u64 = 208,
        /// DSACKs received so far (Linux 4.19).
        dsack_dups: u32 = 216,
        /// How often packets were found to have been reordered (Linux 4.19).
        reord_seen: u32 = 220,
    }

    /// Smallest round-trip time of the last minutes in microseconds; `None` also without any sample
    /// (Linux 4.6).
    #[must_use]
    pub fn min_rtt_us(self) -> Option<u32> {
        let bytes = self.0.get(148..152)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes)).filter(|us| *us != u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn tcp_info_reads_live_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.write_all(&[0; 1000]).unwrap();
        there.read_exact(&mut [0; 1000]).unwrap();
        TcpInfo::read(&here, |info| {
            assert!(info.rtt_us().is_some() && info.snd_cwnd() > Some(0));
            assert!(info.bytes_sent().is_none_or(|bytes| bytes >= 1000));
        })
        .unwrap();
    }

    #[test]
    fn tcp_info_fields_beyond_kernel_length_are_none() {
        let info = TcpInfo::new(&[0; 104]);
        assert_eq!((info.total_retrans(), info.segs_out()), (Some(0), None));
        assert_eq!(TcpInfo::new(&[]).ca_state(), None);
        assert_eq!(TcpInfo::new(&[u8::MAX; 152]).min_rtt_us(), None);
    }
}
