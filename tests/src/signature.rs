//! TCP MD5 signatures (RFC 2385), one key for all.

use std::net::IpAddr;
use std::os::fd::AsFd;

use etherparse::TcpHeader;

use crate::socket::set_option;

const KEY: &[u8] = b"rides pillion";

/// What precedes the digest in the option: two NOPs, kind, length.
const OPTION: [u8; 4] = [1, 1, 19, 18];
const DIGEST: usize = 16;

/// Bytes that the signature's option takes from the MSS.
pub(crate) const LENGTH: u16 = (OPTION.len() + DIGEST) as u16;

/// Has the kernel sign what it sends to a peer, and take in nothing that is not signed.
pub(crate) fn require(socket: &impl AsFd, peer: IpAddr) {
    const ADDRESS_STORAGE: usize = 128;
    const KEY_STORAGE: usize = 80;
    // struct tcp_md5sig: a sockaddr_storage, flags, prefix, key's length, device, key.
    let (family, at, octets) = match peer {
        IpAddr::V4(address) => (libc::AF_INET, 4, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, 8, address.octets().to_vec()),
    };
    let mut value = vec![0; ADDRESS_STORAGE + 8 + KEY_STORAGE];
    value[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    value[at..at + octets.len()].copy_from_slice(&octets);
    value[ADDRESS_STORAGE + 2..][..2].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    value[ADDRESS_STORAGE + 8..][..KEY.len()].copy_from_slice(KEY);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &value);
}

/// Adds the signature of a segment to its options.
pub(crate) fn sign(addresses: (IpAddr, IpAddr), header: &mut TcpHeader, payload: &[u8]) {
    let options = header.options.as_slice().to_vec();
    let signed = |digest| [&options[..], &OPTION, digest].concat();
    // The header's length is signed with the rest.
    let room = signed(&[0; DIGEST]);
    header.set_options_raw(&room).expect("the options fit");
    let digest = digest(addresses, header, payload);
    let options = signed(&digest);
    header.set_options_raw(&options).expect("the options fit");
}

/// Whether a segment carries the right signature; `None` if it carries none.
pub(crate) fn is_right(
    addresses: (IpAddr, IpAddr),
    header: &TcpHeader,
    payload: &[u8],
) -> Option<bool> {
    let options = header.options.as_slice();
    let at = options.windows(OPTION.len()).position(|w| w == OPTION)?;
    let is = options.get(at + OPTION.len()..)?.get(..DIGEST)?;
    Some(is == digest(addresses, header, payload))
}

fn digest((from, to): (IpAddr, IpAddr), header: &TcpHeader, payload: &[u8]) -> [u8; DIGEST] {
    const PROTOCOL: u8 = 6;
    let length = (header.header_len() + payload.len()) as u32;
    let mut text = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            text.extend([from.octets(), to.octets()].concat());
            text.extend([0, PROTOCOL]);
            text.extend((length as u16).to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            text.extend([from.octets(), to.octets()].concat());
            text.extend(length.to_be_bytes());
            text.extend([0, 0, 0, PROTOCOL]);
        }
        mixed => panic!("one family at both ends, not {mixed:?}"),
    }
    let unsummed = TcpHeader {
        checksum: 0,
        ..header.clone()
    };
    text.extend(&unsummed.to_bytes()[..TcpHeader::MIN_LEN]);
    text.extend(payload);
    text.extend(KEY);
    md5::compute(text).0
}
