use std::net::{IpAddr, SocketAddr};

use crate::Endpoint;

/// Which packets of a trace are given; each condition that is set has to hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// One end has one of these addresses; empty: any.
    addresses: Vec<[u8; 16]>,
    /// One end has one of these ports; empty: any.
    ports: Vec<u16>,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
}

impl Filter {
    /// Takes packets from or to this address, besides those already taken.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.addresses
            .push(Endpoint::from(SocketAddr::new(address, 0)).address);
        self
    }

    /// Takes packets from or to this port, besides those already taken.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// Leaves out what was captured before, in nanoseconds since 1970.
    #[must_use]
    pub fn from(mut self, ns: i64) -> Self {
        self.from_ns = Some(ns);
        self
    }

    /// Leaves out what was captured then or later, in nanoseconds since 1970.
    #[must_use]
    pub fn until(mut self, ns: i64) -> Self {
        self.until_ns = Some(ns);
        self
    }

    #[inline]
    pub(super) fn takes_time(&self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from| ns >= from) && self.until_ns.is_none_or(|until| ns < until)
    }

    #[inline]
    pub(super) fn takes_ends(&self, from: &Endpoint, to: &Endpoint) -> bool {
        let ends = [from, to];
        (self.addresses.is_empty() || ends.iter().any(|end| self.addresses.contains(&end.address)))
            && (self.ports.is_empty() || ends.iter().any(|end| self.ports.contains(&end.port)))
    }
}
