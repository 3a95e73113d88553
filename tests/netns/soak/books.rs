//! Both ends' accounts of each connection, held against each other.

use std::collections::BTreeMap;

use super::plan::{Kind, Side};
use super::said::Said;
use super::talk::Account;

#[derive(Debug, Default)]
pub struct Books {
    /// Connections begun, by kind.
    pub opened: BTreeMap<Kind, u64>,
    /// Bytes that arrived and were as they should be, both directions.
    pub verified: u64,
    /// Accounts whose other half is still to come.
    open: BTreeMap<(u64, Side), Account>,
    /// Begun, and without their client's account so far.
    under_way: u64,
}

impl Books {
    /// Takes in what an end says. An error says what is broken.
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

    /// Once everything has ended: is there an end that nobody has heard of?
    pub fn close(&self) -> Result<(), String> {
        if self.under_way > 0 {
            return Err(format!("{} connections have no end", self.under_way));
        }
        // A reset can come before the server knows which connection it is.
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
