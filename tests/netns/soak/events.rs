//! Events that endpoint processes report line by line, and the comparison of both ends' byte
//! counts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::plan::{Kind, Side};

/// Line on an endpoint's standard output. Other lines come from the test harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEvent {
    /// The server accepts connections.
    Listening,
    /// A client has opened this connection.
    Opened(u64),
    /// One end of a connection has finished.
    Ended(u64, Side, ByteCounts),
    /// A violation.
    Broken(String),
}

/// Sent and received bytes of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteCounts {
    pub sent: u64,
    pub received: u64,
}

const PREFIX: &str = "soak: ";

impl fmt::Display for EndpointEvent {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Listening => write!(f, "{PREFIX}listening"),
            Self::Opened(connection) => write!(f, "{PREFIX}opened {connection}"),
            Self::Ended(connection, side, account) => {
                let ByteCounts { sent, received } = account;
                let side = *side as u8;
                write!(f, "{PREFIX}ended {connection} {side} {sent} {received}")
            }
            Self::Broken(violation) => write!(f, "{PREFIX}broken {violation}"),
        }
    }
}

impl FromStr for EndpointEvent {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let event = line.strip_prefix(PREFIX).ok_or(())?;
        let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|it| it.parse().ok()).collect();
        match (word, &numbers[..]) {
            ("broken", _) => Ok(Self::Broken(rest.to_owned())),
            ("listening", []) => Ok(Self::Listening),
            ("opened", [connection]) => Ok(Self::Opened(*connection)),
            ("ended", [connection, side, sent, received]) => {
                let side = match side {
                    0 => Side::Client,
                    _ => Side::Server,
                };
                let account = ByteCounts {
                    sent: *sent,
                    received: *received,
                };
                Ok(Self::Ended(*connection, side, account))
            }
            _ => Err(()),
        }
    }
}

#[test]
fn endpoint_event_round_trips_through_text() {
    let account = ByteCounts {
        sent: 3,
        received: 4,
    };
    for event in [
        EndpointEvent::Listening,
        EndpointEvent::Opened(7),
        EndpointEvent::Ended(7, Side::Server, account),
        EndpointEvent::Broken("7: a byte".to_owned()),
    ] {
        assert_eq!(event.to_string().parse(), Ok(event));
    }
    assert_eq!("running 1 test".parse::<EndpointEvent>(), Err(()));
}

#[derive(Debug, Default)]
pub struct ConnectionLedger {
    /// Opened connections by kind.
    pub opened: BTreeMap<Kind, u64>,
    /// Received and verified bytes, in both directions.
    pub verified: u64,
    /// Byte counts whose counterpart from the other end is missing.
    unpaired: BTreeMap<(u64, Side), ByteCounts>,
    /// Open connections: the client has not reported their end.
    open_connections: u64,
}

impl ConnectionLedger {
    /// Processes an event of an endpoint. An error describes a violation.
    pub fn handle(&mut self, event: EndpointEvent) -> Result<(), String> {
        match event {
            EndpointEvent::Listening => Ok(()),
            EndpointEvent::Opened(connection) => {
                *self.opened.entry(Kind::of(connection)).or_default() += 1;
                self.open_connections += 1;
                Ok(())
            }
            EndpointEvent::Broken(violation) => Err(violation),
            EndpointEvent::Ended(connection, side, account) => {
                self.verified += account.received;
                self.open_connections -= u64::from(side == Side::Client);
                match self.unpaired.remove(&(connection, side.other())) {
                    Some(other) => compare(connection, account, other),
                    None => {
                        self.unpaired.insert((connection, side), account);
                        Ok(())
                    }
                }
            }
        }
    }

    pub fn opened_total(&self) -> u64 {
        self.opened.values().sum()
    }

    pub fn open_connections(&self) -> u64 {
        self.open_connections
    }

    /// Checks at the end that both ends of every connection have reported.
    pub fn check_complete(&self) -> Result<(), String> {
        if self.open_connections > 0 {
            return Err(format!("{} connections never ended", self.open_connections));
        }
        // A reset can arrive before the server knows the connection's number.
        let missing = self.unpaired.keys().find(|(connection, side)| {
            let reset_at_once = Kind::of(*connection) == Kind::Reset && *side == Side::Client;
            !reset_at_once
        });
        missing.map_or(Ok(()), |(connection, side)| {
            let kind = Kind::of(*connection).name();
            let missing = side.other();
            Err(format!(
                "connection {connection} ({kind}): its {missing:?} never ended"
            ))
        })
    }
}

fn compare(connection: u64, one: ByteCounts, other: ByteCounts) -> Result<(), String> {
    let kind = Kind::of(connection);
    let fits = |sent: u64, received: u64| match kind {
        Kind::Reset => received <= sent,
        _ => received == sent,
    };
    if fits(one.sent, other.received) && fits(other.sent, one.received) {
        return Ok(());
    }
    let kind = kind.name();
    Err(format!(
        "connection {connection} ({kind}): {one:?} at one end, {other:?} at the other"
    ))
}
