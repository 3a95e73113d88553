
use std::collections::BTreeMap;

use super::plan::{Kind, Side};
use super::said::Said;
use super::talk::Account;

#[derive(Debug, Default)]
pub struct Books {
    /// Opened connections by kind.
    pub opened: BTreeMap<Kind, u64>,
    /// Received and verified bytes, in both directions.
    pub verified: u64,
    /// Byte counts whose counterpart from the other end is missing.
    open: BTreeMap<(u64, Side), Account>,
    /// Open connections: the client has not reported their end.
    under_way: u64,
}

impl Books {
    /// Processes an event of an endpoint. An error describes a violation.
    pub fn take(&mut self, said: Said) -> Result<(), String> {
        match said {
            Said::Listening => Ok(()),
            Said::Opened(connection) => {
                *self.opened.entry(Kind::of(connection)).or_default() += 1;
                self.under_way += 1;
                Ok(())
            }
            Said::Broken(what) => Err(what),
            Said::Ended(connection, side, account) => {
                self.verified += account.received;
                self.under_way -= u64::from(side == Side::Client);
                match self.open.remove(&(connection, side.other())) {
                    Some(other) => compare(connection, account, other),
                    None => {
                        self.open.insert((connection, side), account);
                        Ok(())
                    }
                }
            }
        }
    }

    pub fn all(&self) -> u64 {
        self.opened.values().sum()
    }

    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Checks at the end that both ends of every connection have reported.
    pub fn close(&self) -> Result<(), String> {
        if self.under_way > 0 {
            return Err(format!("{} connections never ended", self.under_way));
        }
        // A reset can arrive before the server knows the connection's number.
        let lost = self.open.keys().find(|(connection, side)| {
            let reset_at_once = Kind::of(*connection) == Kind::Reset && *side == Side::Client;
            !reset_at_once
        });
        lost.map_or(Ok(()), |(connection, side)| {
            let kind = Kind::of(*connection).name();
            let missing = side.other();
            Err(format!(
                "connection {connection} ({kind}): its {missing:?} never ended"
            ))
        })
    }
}

fn compare(connection: u64, one: Account, other: Account) -> Result<(), String> {
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
