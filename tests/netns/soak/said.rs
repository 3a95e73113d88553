//! Events that endpoint processes report line by line, and the comparison of both ends' byte
//! counts.

use std::fmt;
use std::str::FromStr;

use super::plan::Side;
use super::talk::Account;

/// Line on an endpoint's standard output. Other lines come from the test harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The server accepts connections.
    Listening,
    /// A client has opened this connection.
    Opened(u64),
    /// One end of a connection has finished.
    Ended(u64, Side, Account),
    /// A violation.
    Broken(String),
}

const MARK: &str = "soak: ";

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Listening => write!(f, "{MARK}listening"),
            Self::Opened(connection) => write!(f, "{MARK}opened {connection}"),
            Self::Ended(connection, side, account) => {
                let Account { sent, received } = account;
                let side = *side as u8;
                write!(f, "{MARK}ended {connection} {side} {sent} {received}")
            }
            Self::Broken(what) => write!(f, "{MARK}broken {what}"),
        }
    }
}

impl FromStr for Said {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let said = line.strip_prefix(MARK).ok_or(())?;
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
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
                let account = Account {
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
fn what_is_said_is_understood() {
    let account = Account {
        sent: 3,
        received: 4,
    };
    for said in [
        Said::Listening,
        Said::Opened(7),
        Said::Ended(7, Side::Server, account),
        Said::Broken("7: a byte".to_owned()),
    ] {
        assert_eq!(said.to_string().parse(), Ok(said));
    }
    assert_eq!("running 1 test".parse::<Said>(), Err(()));
}
