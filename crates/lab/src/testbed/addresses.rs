use std::net::Ipv4Addr;

/// The address of a sending host, by its number.
pub(super) fn sender(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, host as u8 + 1)
}

/// The address of the router, towards the senders.
pub(super) const ROUTER_IN: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 254);

/// The address of the router, towards the receiver.
pub(super) const ROUTER_OUT: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 254);

/// The address of the receiver.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
