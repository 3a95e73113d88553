use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags};

use crate::Error;

/// Which network namespaces' connections are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Those of the cgroup's sockets, wherever they live.
    #[default]
    Anywhere,
    /// Those of the calling thread's network namespace alone.
    ThisNamespace,
}

/// Which connections are bundled: those that match one of the ports and one of the
/// peers, where such are given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Local or remote ports; none given: any.
    pub ports: Vec<u16>,
    /// Remote addresses; none given: any.
    pub peers: Vec<IpNet>,
    /// Where connections must live.
    pub scope: Scope,
}

impl Policy {
    /// Fills the maps that the programs match against.
    pub(crate) fn store(&self, ports: &impl MapCore, peers: &impl MapCore) -> Result<(), Error> {
        let failed = |error: libbpf_rs::Error| {
            Error::system("store the policy", io::Error::other(error.to_string()))
        };
        for port in &self.ports {
            ports
                .update(&port.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(failed)?;
        }
        for peer in &self.peers {
            peers
                .update(&prefix(*peer), &[1], MapFlags::ANY)
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// A key of the peers' trie: bits, then the address, IPv4 as `::ffff:a.b.c.d`.
fn prefix(net: IpNet) -> [u8; 20] {
    let (address, bits) = match net.addr() {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 96 + u32::from(net.prefix_len())),
        IpAddr::V6(v6) => (v6, u32::from(net.prefix_len())),
    };
    let mut key = [0; 20];
    key[..4].copy_from_slice(&bits.to_ne_bytes());
    key[4..].copy_from_slice(&address.octets());
    key
}

/// The kernel's cookie of the calling thread's network namespace.
pub(crate) fn netns_cookie() -> Result<u64, Error> {
    let action = "find this network namespace's cookie";
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|errno| Error::system(action, errno.into()))?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the value and its length live on this stack and have the sizes stated.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(Error::system(action, io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_prefix_is_stored_as_its_mapped_form() {
        let key = prefix("10.1.0.0/16".parse().unwrap());
        assert_eq!(key[..4], 112u32.to_ne_bytes());
        assert_eq!(
            key[4..],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 0]
        );
    }

    #[test]
    fn an_ipv6_prefix_keeps_its_length() {
        let key = prefix("2001:db8::/32".parse().unwrap());
        assert_eq!(key[..4], 32u32.to_ne_bytes());
        assert_eq!(key[4..8], [0x20, 0x01, 0x0d, 0xb8]);
    }
}
