use std::net::IpAddr;
use std::ops::RangeInclusive;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::contract::types::{self, helper_port, helper_port_bits};
use crate::{CgroupName, Container, ContainerSelector, Error, Holdback, Options, TcpOptions};

/// The side that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// This host opened the connection, by connect(2).
    Connect,
    /// The peer opened the connection; this host took it in by accept(2).
    Accept,
}

/// Mode of the connections that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The connections are bundled with these options, unless their application declines, and get
    /// the rule's TCP options.
    Bundle(Options),
    /// The connections are bundled with these options on request of their application. They always
    /// get the rule's TCP options.
    OnRequest(Options),
    /// The connections only get the rule's TCP options, and are not bundled.
    TcpOptions,
    /// The connections are not bundled, and get no TCP options.
    Never,
}

/// Matches connections that meet every condition. In a list, one of its entries has to match; an
/// empty list is no condition.
///
/// The default has no condition, and bundles with the default options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Ports of either endpoint.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Ports of this host's endpoint.
    pub local_ports: Vec<RangeInclusive<u16>>,
    /// Ports of the peer's endpoint.
    pub remote_ports: Vec<RangeInclusive<u16>>,
    /// Addresses of the peer.
    pub peers: Vec<IpNet>,
    /// The socket's cgroup, or one above it. A name that no cgroup has matches nothing.
    pub cgroups: Vec<CgroupName>,
    /// The containers of the socket, by their cgroups. Not combined with `cgroups`.
    pub containers: ContainerSelector,
    /// The user whose the socket is.
    pub uid: Option<u32>,
    /// The side that opened the connection. It is unknown for connections older than the programs:
    /// they match a rule with a direction only if its mode is [`Mode::Never`].
    pub direction: Option<Direction>,
    /// Mode of the matching connections.
    pub mode: Mode,
    /// The TCP options of matching connections, unless the mode is [`Mode::Never`].
    pub tcp_options: TcpOptions,
    /// Share of bundled connections that stay plain, for comparison. It has an effect only with
    /// [`Observing::by_holdback`](crate::Observing::by_holdback).
    pub holdback: Holdback,
    /// Keys and values in its file, `[defaults]` included: equal for an unchanged rule, also in another
    /// version of pillion. Empty for a rule of the command line.
    pub source: String,
}

impl Default for Rule {
    fn default() -> Self {
        Self::all(Options::default())
    }
}

impl Rule {
    /// A rule that bundles every connection with these options.
    #[must_use]
    pub fn all(options: Options) -> Self {
        Self {
            ports: Vec::new(),
            local_ports: Vec::new(),
            remote_ports: Vec::new(),
            peers: Vec::new(),
            cgroups: Vec::new(),
            containers: ContainerSelector::default(),
            uid: None,
            direction: None,
            mode: Mode::Bundle(options),
            tcp_options: TcpOptions::default(),
            holdback: Holdback::default(),
            source: String::new(),
        }
    }

    /// Rows that the rule takes in the kernel's table: the product of the lengths of its lists of ports
    /// and peers, where an empty one counts as 1.
    #[must_use]
    pub fn rows(&self) -> usize {
        let ports = [&self.ports, &self.local_ports, &self.remote_ports];
        let lists = ports.map(Vec::len).into_iter().chain([self.peers.len()]);
        let lists = lists.map(|length| length.max(1));
        lists.fold(1, usize::saturating_mul)
    }

    /// The ids of the named cgroups, or of the chosen running containers; `None` if any cgroup
    /// matches.
    ///
    /// # Errors
    ///
    /// As [`CgroupName::ids`].
    pub fn cgroup_ids(&self, running: &[Container]) -> Result<Option<Vec<u64>>, Error> {
        if self.cgroups.is_empty() && self.containers.is_empty() {
            return Ok(None);
        }
        let named: Vec<_> = self
            .cgroups
            .iter()
            .map(CgroupName::ids)
            .collect::<Result<_, _>>()?;
        let chosen = running.iter().filter(|it| self.containers.matches(it));
        let ids = named.into_iter().flatten();
        Ok(Some(ids.chain(chosen.map(|it| it.cgroup)).collect()))
    }

    /// The rule's rows, one for each combination of its lists' entries; all have the rule's number, and
    /// the bit of the cgroups that it names, 0 if it may be any.
    pub(crate) fn expand(&self, number: u32, cgroups: u64) -> Vec<types::rule> {
        let mut rows = vec![types::rule {
            number,
            cgroups,
            ..self.base_row()
        }];
        cross(&mut rows, &self.ports, |row, ports| row.ports = raw(ports));
        cross(&mut rows, &self.local_ports, |row, ports| {
            row.local_ports = raw(ports);
        });
        cross(&mut rows, &self.remote_ports, |row, ports| {
            row.remote_ports = raw(ports);
        });
        cross(&mut rows, &self.peers, |row, peer| {
            (row.peer, row.peer_mask) = prefix(*peer);
            row.ipv6 = u32::from(is_ipv6_only(*peer));
        });
        rows
    }

    fn base_row(&self) -> types::rule {
        let any = raw(&(0..=u16::MAX));
        let (mode, options, tcp_options) = match self.mode {
            Mode::Bundle(options) => (types::rule_mode::RULE_BUNDLE, options, self.tcp_options),
            Mode::OnRequest(options) => {
                (types::rule_mode::RULE_ON_REQUEST, options, self.tcp_options)
            }
            Mode::TcpOptions => {
                let mode = types::rule_mode::RULE_NEVER;
                (mode, Options::default(), self.tcp_options)
            }
            Mode::Never => {
                let mode = types::rule_mode::RULE_NEVER;
                (mode, Options::default(), TcpOptions::default())
            }
        };
        let open_kind = match self.direction {
            None => types::open_kind(!0),
            Some(Direction::Connect) => types::open_kind::ACTIVE_OPEN,
            Some(Direction::Accept) => types::open_kind::PASSIVE_OPEN,
        };
        // An unknown direction matches only "never".
        let before_attach = match self.mode {
            Mode::Bundle(_) | Mode::OnRequest(_) | Mode::TcpOptions => 0,
            Mode::Never => types::open_kind::PREEXISTING.0,
        };
        types::rule {
            ports: any,
            local_ports: any,
            remote_ports: any,
            uid: self.uid.unwrap_or(ANY_UID),
            open_kinds: open_kind.0 | before_attach,
            mode,
            options: types::options {
                holdback: self.holdback.buckets(),
                ..options.into()
            },
            tcp_options: tcp_options.into(),
            helper_ports: named_helper_ports(&self.ports, &self.local_ports, &self.remote_ports),
            ..types::rule::default()
        }
    }
}

/// Stands for any user; no user has this id.
const ANY_UID: u32 = types::any_uid::ANY_UID.0;

/// Replaces each row by one for each value, if there are any.
fn cross<T>(rows: &mut Vec<types::rule>, values: &[T], set: impl Fn(&mut types::rule, &T)) {
    if values.is_empty() {
        return;
    }
    *rows = rows
        .iter()
        .flat_map(|row| {
            values.iter().map(|value| {
                let mut row = *row;
                set(&mut row, value);
                row
            })
        })
        .collect();
}

fn raw(ports: &RangeInclusive<u16>) -> types::port_range {
    types::port_range {
        first: *ports.start(),
        last: *ports.end(),
    }
}

/// A network's address and mask in the order of the wire, IPv4 as `::ffff:a.b.c.d`.
fn prefix(net: IpNet) -> ([u64; 2], [u64; 2]) {
    let (address, bits) = match net.addr() {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 96 + u32::from(net.prefix_len())),
        IpAddr::V6(v6) => (v6, u32::from(net.prefix_len())),
    };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (halves(address.to_bits() & mask), halves(mask))
}

/// True if a network has only IPv6 addresses, though its mask may cover ::ffff:0:0/96, the kernel's
/// form of IPv4 addresses.
fn is_ipv6_only(net: IpNet) -> bool {
    net.addr().is_ipv6() && net.prefix_len() < 96
}

fn halves(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64].map(u64::to_be)
}

const HELPER_PORT_BITS: u32 = helper_port_bits::HELPER_PORT_BITS.0;

/// Ports whose payload NAT boxes rewrite: FTP, RTSP, H.323, PPTP, SCCP, SIP and IRC, in the order of their bits.
pub const HELPER_PORTS: [u16; 7] = [
    helper_port::HELPER_FTP.0 as u16,
    helper_port::HELPER_RTSP.0 as u16,
    helper_port::HELPER_H323.0 as u16,
    helper_port::HELPER_PPTP.0 as u16,
    helper_port::HELPER_SCCP.0 as u16,
    helper_port::HELPER_SIP.0 as u16,
    helper_port::HELPER_IRC.0 as u16,
];

/// The bits of the helper ports that a rule names as single ports. A range that includes one rarely
/// means it.
pub(crate) fn named_helper_ports(
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

    fn bytes(halves: [u64; 2]) -> [u8; 16] {
        let [first, last] = halves.map(u64::to_ne_bytes);
        std::array::from_fn(|i| if i < 8 { first[i] } else { last[i - 8] })
    }

    #[test]
    fn ipv4_network_is_stored_mapped_without_host_bits() {
        let (address, mask) = prefix("10.1.2.3/16".parse().unwrap());
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 0];
        assert_eq!(bytes(address), mapped);
        assert_eq!(bytes(mask)[..14], [0xff; 14]);
        assert_eq!(bytes(mask)[14..], [0; 2]);
    }

    #[test]
    fn ipv6_network_keeps_prefix_length() {
        let (address, mask) = prefix("2001:db8::/32".parse().unwrap());
        assert_eq!(bytes(address)[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(bytes(mask)[..5], [0xff, 0xff, 0xff, 0xff, 0]);
        assert_eq!(prefix("::/0".parse().unwrap()), ([0; 2], [0; 2]));
    }

    #[test]
    fn rule_expands_to_row_per_combination() {
        let rule = Rule {
            ports: vec![1..=1, 5..=9],
            peers: vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()],
            ..Rule::default()
        };
        let rows = rule.expand(7, 0);
        assert_eq!(rows.len(), rule.rows());
        let ports: Vec<_> = rows.iter().map(|row| row.ports.last).collect();
        assert_eq!(ports, [1, 1, 9, 9]);
        assert!(rows.iter().all(|row| row.number == 7));
        assert_eq!(rows[0].local_ports.last, u16::MAX);
        assert_ne!(rows[0].peer, rows[1].peer);
    }

    #[test]
    fn port_range_does_not_name_helper_port() {
        let (ftp, irc) = (1, 64);
        assert_eq!(
            named_helper_ports(&[21..=21], &[], &[]),
            ftp | ftp << HELPER_PORT_BITS
        );
        assert_eq!(named_helper_ports(&[], &[20..=20, 6667..=6667], &[]), irc);
        assert_eq!(
            named_helper_ports(&[], &[], &[21..=21]),
            ftp << HELPER_PORT_BITS
        );
        assert_eq!(named_helper_ports(&[20..=21, 0..=u16::MAX], &[], &[]), 0);
    }
}
