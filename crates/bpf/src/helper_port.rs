//! Ports whose payload NAT boxes rewrite (`bpf/bundler/policy/helper_port.h`).

use std::ops::RangeInclusive;

use crate::contract::types::{helper_port, helper_port_bits};

const HELPER_PORT_BITS: u32 = helper_port_bits::HELPER_PORT_BITS.0;

/// FTP, RTSP, H.323, PPTP, SCCP, SIP and IRC, in the order of their bits.
pub const HELPER_PORTS: [u16; 7] = [
    helper_port::HELPER_FTP.0 as u16,
    helper_port::HELPER_RTSP.0 as u16,
    helper_port::HELPER_H323.0 as u16,
    helper_port::HELPER_PPTP.0 as u16,
    helper_port::HELPER_SCCP.0 as u16,
    helper_port::HELPER_SIP.0 as u16,
    helper_port::HELPER_IRC.0 as u16,
];

/// The bits of those that a rule names, each by itself: a range that includes one was as a rule not
/// written with it in mind.
pub(crate) fn named(
    any: &[RangeInclusive<u16>],
    local: &[RangeInclusive<u16>],
    remote: &[RangeInclusive<u16>],
) -> u32 {
    let bits = |ports: &[RangeInclusive<u16>]| {
        let named = HELPER_PORTS.map(|port| ports.contains(&(port..=port)));
        named
            .iter()
            .rev()
            .fold(0, |bits, named| bits << 1 | u32::from(*named))
    };
    let any = bits(any);
    any | bits(local) | (any | bits(remote)) << HELPER_PORT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_ports_are_named() {
        let (ftp, irc) = (1, 64);
        assert_eq!(named(&[21..=21], &[], &[]), ftp | ftp << HELPER_PORT_BITS);
        assert_eq!(named(&[], &[20..=20, 6667..=6667], &[]), irc);
        assert_eq!(named(&[], &[], &[21..=21]), ftp << HELPER_PORT_BITS);
        assert_eq!(named(&[20..=21, 0..=u16::MAX], &[], &[]), 0);
    }
}
