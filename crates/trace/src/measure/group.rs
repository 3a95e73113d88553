use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

use crate::{Connection, Endpoint};

/// A named group of connections that are also measured together.
///
/// Written `NAME=CONDITION,...`. A connection belongs to every group whose conditions all hold. A
/// condition is an end: `192.0.2.1`, `192.0.2.0/24`, `:80`, `:5000-5999`, `192.0.2.1:80`,
/// `[2001:db8::1]:80`, `2001:db8::/32`. It matches either end; `from:` restricts it to the end that
/// opened the connection, `to:` to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    scope: EndScope,
    network: Option<IpNet>,
    ports: Option<RangeInclusive<u16>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndScope {
    Either,
    Originator,
    Responder,
}

/// An invalid group.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GroupError {
    /// The text is not of the form `NAME=CONDITION,...`.
    #[error("invalid group {0:?}: expected NAME=CONDITION[,CONDITION...], as in thin=:5000-5999")]
    NoName(String),
    /// A condition is invalid.
    #[error(
        "invalid condition {0:?}: expected ADDRESS, ADDRESS/PREFIX, :PORT, :PORT-PORT or \
         ADDRESS:PORT (IPv6: [ADDRESS]:PORT), with from: before it for the end that opened the \
         connection, or to: for the other"
    )]
    NoEnd(String),
}

impl Group {
    /// Connections opened to this end.
    #[must_use]
    pub fn to(name: String, end: SocketAddr) -> Self {
        let condition = Condition {
            scope: EndScope::Responder,
            network: Some(end.ip().into()),
            ports: Some(end.port()..=end.port()),
        };
        Self {
            name,
            conditions: vec![condition],
        }
    }

    /// Whether a connection belongs to it.
    #[must_use]
    pub fn contains(&self, connection: &Connection) -> bool {
        let (originator, responder) = (connection.originator, connection.responder);
        self.conditions.iter().all(|condition| {
            let holds = |end| condition.holds(end);
            match condition.scope {
                EndScope::Either => holds(originator) || holds(responder),
                EndScope::Originator => holds(originator),
                EndScope::Responder => holds(responder),
            }
        })
    }
}

impl Condition {
    fn holds(&self, end: Endpoint) -> bool {
        let network = self.network.as_ref();
        let ports = self.ports.as_ref();
        network.is_none_or(|network| end.is_in(network))
            && ports.is_none_or(|ports| ports.contains(&end.port))
    }
}

impl FromStr for Group {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let named = text.split_once('=');
        let (name, conditions) = named
            .filter(|(name, conditions)| !name.trim().is_empty() && !conditions.trim().is_empty())
            .ok_or_else(|| GroupError::NoName(text.into()))?;
        Ok(Self {
            name: name.trim().into(),
            conditions: conditions
                .split(',')
                .map(|condition| condition.trim().parse())
                .collect::<Result<_, _>>()?,
        })
    }
}

impl FromStr for Condition {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let (scope, end) = if let Some(end) = text.strip_prefix("from:") {
            (EndScope::Originator, end)
        } else if let Some(end) = text.strip_prefix("to:") {
            (EndScope::Responder, end)
        } else {
            (EndScope::Either, text)
        };
        let (network, ports) = end_of(end).ok_or_else(|| GroupError::NoEnd(text.into()))?;
        Ok(Self {
            scope,
            network,
            ports,
        })
    }
}

type EndPattern = (Option<IpNet>, Option<RangeInclusive<u16>>);

fn end_of(text: &str) -> Option<EndPattern> {
    if let Some(network) = network_of(text) {
        return Some((Some(network), None));
    }
    let (address, ports) = text.rsplit_once(':')?;
    let ports = match ports.split_once('-') {
        Some((first, last)) => first.parse().ok()?..=last.parse().ok()?,
        None => {
            let port = ports.parse().ok()?;
            port..=port
        }
    };
    if ports.is_empty() {
        return None;
    }
    let bare = match address.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if address.contains(':') => return None,
        None => address,
    };
    let network = if bare.is_empty() {
        None
    } else {
        Some(network_of(bare)?)
    };
    Some((network, Some(ports)))
}

fn network_of(text: &str) -> Option<IpNet> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse::<IpNet>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, endpoint};
    use crate::{Analysis, Observer};

    /// Whether a group contains each of these connections.
    fn taken(group: &str, ends: &[(&str, &str)]) -> Vec<bool> {
        struct Matched(Group, Vec<bool>);
        impl Observer for Matched {
            fn finished(&mut self, connection: &Connection) {
                self.1.push(self.0.contains(connection));
            }
        }
        let mut analysis = Analysis::new(Matched(group.parse().unwrap(), Vec::new()));
        let mut script = Script::new();
        for (client, server) in ends {
            (script.client, script.server) = (endpoint(client), endpoint(server));
            script.syn();
        }
        for packet in &script.packets {
            analysis.packet(packet);
        }
        analysis.finish().1
    }

    const ENDS: [(&str, &str); 4] = [
        ("192.0.2.1:5000", "198.51.100.1:80"),
        ("192.0.2.99:5999", "198.51.100.1:5001"),
        ("198.51.100.1:80", "192.0.2.1:6000"),
        ("[2001:db8::1]:5000", "[2001:db8::2]:80"),
    ];

    #[test]
    fn group_contains_connections_that_match_all_conditions() {
        for (group, expected) in [
            ("a=:80", [true, false, true, true]),
            ("a=to::80", [true, false, false, true]),
            ("a=from::5000-5999", [true, true, false, true]),
            ("a=192.0.2.1", [true, false, true, false]),
            (
                "a=from:192.0.2.0/24,to:198.51.100.1:80",
                [true, false, false, false],
            ),
            ("a=2001:db8::/32", [false, false, false, true]),
            ("a=[2001:db8::2]:80", [false, false, false, true]),
            ("a=192.0.2.1, 198.51.100.1:80", [true, false, true, false]),
        ] {
            assert_eq!(taken(group, &ENDS), expected, "{group}");
        }
    }

    #[test]
    fn invalid_group_text_gives_specific_error() {
        for text in ["", "thin", "=:80", "thin="] {
            assert_eq!(text.parse::<Group>(), Err(GroupError::NoName(text.into())));
        }
        for end in [
            "80",
            ":",
            ":80-",
            ":90-80",
            ":70000",
            "host:80",
            "2001:db8::1:x",
            "[::1:80",
        ] {
            let found = format!("a=:1,{end}").parse::<Group>();
            assert_eq!(found, Err(GroupError::NoEnd(end.into())));
        }
    }
}
