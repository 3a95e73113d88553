//! Own code, because netlink-packet-sock-diag would replace only about 60 lines, and its parser of
//! `TCP_INFO` rejects kernels that report fewer than 232 bytes.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};

use pillion_bpf::host::TcpInfo;
use pillion_bpf::host::interruption::retry;

use crate::sockets::{Connection, Error, Sample, State};

/// Requests the TCP connections of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Sockets(Socket);

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Bytes of `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// From `linux/sock_diag.h` and `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
const REQUEST_DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
const FAMILIES: [(u8, bool); 2] = [(libc::AF_INET as u8, false), (libc::AF_INET6 as u8, true)];
/// All states of a connection with its own socket.
const STATES: [State; 7] = [
    State::Established,
    State::SynSent,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::LastAck,
    State::Closing,
];

impl Sockets {
    /// Opens a netlink socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
            socket.bind_auto()?;
            socket.connect(&NetlinkAddr::new(0, 0))?;
            Ok(socket)
        };
        open().map(Self).map_err(Error::Query)
    }

    /// Samples all connections, ordered by local and remote port.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn sample(&mut self, at_ns: u64) -> Result<Vec<Sample>, Error> {
        let mut samples = Vec::new();
        for (family, _) in FAMILIES {
            self.dump(family, |connection, info| {
                samples.push(Sample::new(at_ns, connection, TcpInfo::new(info)));
            })
            .map_err(Error::Query)?;
        }
        samples.sort_by_key(|it| (it.local.port(), it.peer.port(), it.local, it.peer));
        Ok(samples)
    }

    fn dump(&mut self, family: u8, mut found: impl FnMut(Connection, &[u8])) -> io::Result<()> {
        retry(|| self.0.send(&request(family), 0))?;
        loop {
            let (bytes, _) = retry(|| self.0.recv_from_full())?;
            let mut rest = bytes.as_slice();
            while let Some((kind, message, remaining)) = split(rest) {
                rest = remaining;
                match kind {
                    DONE => return Ok(()),
                    ERROR => return Err(kernel_error(message)),
                    _ => {
                        if let Some((connection, info)) = parse(message) {
                            found(connection, info);
                        }
                    }
                }
            }
        }
    }
}

/// Builds a request for connections of an address family: a netlink header and the query.
fn request(family: u8) -> Vec<u8> {
    let states = STATES
        .iter()
        .fold(0u32, |states, state| states | 1 << *state as u8);
    let mut request = Vec::with_capacity(HEADER + REQUEST);
    request.extend(u32::to_ne_bytes((HEADER + REQUEST) as u32));
    request.extend(u16::to_ne_bytes(SOCK_DIAG_BY_FAMILY));
    request.extend(u16::to_ne_bytes(REQUEST_DUMP));
    request.extend([0; 8]);
    request.extend([
        family,
        libc::IPPROTO_TCP as u8,
        1 << (INET_DIAG_INFO - 1),
        0,
    ]);
    request.extend(u32::to_ne_bytes(states));
    request.resize(HEADER + REQUEST, 0);
    request
}

/// Returns the first message's type and content, and the remaining bytes.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let message = bytes.get(HEADER..length)?;
    Some((
        kind,
        message,
        bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

fn kernel_error(message: &[u8]) -> io::Error {
    let code = message.get(..4).and_then(|code| code.try_into().ok());
    io::Error::from_raw_os_error(-code.map_or(0, i32::from_ne_bytes))
}

fn parse(message: &[u8]) -> Option<(Connection, &[u8])> {
    let (fixed, mut attributes) = message.split_at_checked(MESSAGE)?;
    let (_, is_ipv6) = FAMILIES
        .into_iter()
        .find(|(family, _)| *family == fixed[0])?;
    let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let end = |address: usize, port: u16| {
        let octets: [u8; 16] = std::array::from_fn(|i| fixed[address + i]);
        let [a, b, c, d, ..] = octets;
        let ip = match is_ipv6 {
            true => IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
            false => IpAddr::from([a, b, c, d]),
        };
        SocketAddr::new(ip, port)
    };
    let connection = Connection {
        local: end(8, port(4)),
        peer: end(24, port(6)),
        state: State::of(fixed[1])?,
    };
    while let Some(header) = attributes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        if kind == INET_DIAG_INFO {
            return Some((connection, attributes.get(4..length)?));
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use pillion_bpf::host::socket_option;

    use super::*;

    /// Returns bytes of a socket's `TCP_INFO`, from `offset`.
    fn tcp_info_bytes<const N: usize>(stream: &TcpStream, offset: usize) -> [u8; N] {
        let mut info = [0u8; 512];
        socket_option::read(stream, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut info).unwrap();
        info[offset..offset + N].try_into().unwrap()
    }

    #[test]
    fn sample_matches_tcp_info_of_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut there, _) = listener.accept().unwrap();
            here.write_all(&[7; 5000]).unwrap();
            there.read_exact(&mut [0; 5000]).unwrap();
            there.write_all(&[7]).unwrap();
            here.read_exact(&mut [0]).unwrap();
            let samples = Sockets::open().unwrap().sample(9).unwrap();
            let local = here.local_addr().unwrap();
            let sample = samples.iter().find(|sample| sample.local == local).unwrap();
            assert_eq!(sample.peer, here.peer_addr().unwrap());
            assert_eq!((sample.at_ns, sample.state), (9, State::Established));
            let number = |offset| u32::from_ne_bytes(tcp_info_bytes(&here, offset));
            assert_eq!(sample.cwnd_packets, Some(number(80)));
            assert_eq!(sample.mss_bytes, Some(number(16)));
            assert_eq!(sample.rtt_us, Some(number(68)));
            assert_eq!(sample.total_retrans, Some(number(100)));
            assert_eq!(sample.bytes_received, Some(1));
            assert_eq!(
                sample.bytes_acked,
                Some(u64::from_ne_bytes(tcp_info_bytes(&here, 120)))
            );
            assert_eq!(sample.bytes_sent, Some(5000));
        }
    }

    #[test]
    fn truncated_message_is_ignored() {
        let mut whole = vec![0; MESSAGE];
        whole[0] = 2;
        whole[1] = 1;
        whole.extend([8, 0, 2, 0, 1, 2, 3, 4]);
        assert!(parse(&whole).is_some());
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_none(), "{length}");
        }
        assert!(split(&[200, 0, 0, 0, 0, 0, 0, 0]).is_none());
    }
}
