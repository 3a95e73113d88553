//! Frames, layer by layer.

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const TCP: u8 = 6;

pub fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ethertype.to_be_bytes(), packet].concat()
}

/// From 192.0.2.1 to 192.0.2.2.
pub fn ipv4(payload: &[u8]) -> Vec<u8> {
    ipv4_with(TCP, 0, &[], payload)
}

/// `fragment` is the field of flags and offset.
pub fn ipv4_with(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    [
        &[0x40 | (header_len / 4) as u8, 0][..],
        &total.to_be_bytes(),
        &0x1234_u16.to_be_bytes(),
        &fragment.to_be_bytes(),
        &[64, protocol, 0, 0],
        &[192, 0, 2, 1, 192, 0, 2, 2],
        options,
        payload,
    ]
    .concat()
}

/// From 2001:db8::1 to 2001:db8::2.
pub fn ipv6(payload: &[u8]) -> Vec<u8> {
    ipv6_with(TCP, payload)
}

/// `next` is the kind of the first header in `payload`.
pub fn ipv6_with(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ends = [0; 32];
    for (end, host) in ends.chunks_exact_mut(16).zip(1..) {
        end[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        end[15] = host;
    }
    [
        &[0x60, 0, 0, 0][..],
        &(payload.len() as u16).to_be_bytes(),
        &[next, 64],
        &ends,
        payload,
    ]
    .concat()
}

/// From port 4000 to 80, seq 1000, ACK 2000, window 500, PSH.
pub fn tcp(payload: &[u8]) -> Vec<u8> {
    tcp_with(0x18, &[], payload)
}

pub fn tcp_with(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0, "TCP options come in fours");
    [
        &4000_u16.to_be_bytes()[..],
        &80_u16.to_be_bytes(),
        &1000_u32.to_be_bytes(),
        &2000_u32.to_be_bytes(),
        &[(((20 + options.len()) / 4) << 4) as u8, flags],
        &500_u16.to_be_bytes(),
        &[0; 4],
        options,
        payload,
    ]
    .concat()
}

/// A whole frame: Ethernet, IPv4, TCP with `payload`.
pub fn segment(payload: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &ipv4(&tcp(payload)))
}
