use pillion_stats::report::number::counted;
use thiserror::Error;

use super::Sender;

/// How many connections are named at most.
const MOST: usize = 20;

/// Why a trace does not tell what was written.
#[derive(Debug, Clone, Error)]
pub enum WritesError {
    /// No connection has any data.
    #[error("no TCP connection with data; nothing to replay")]
    NoData,
    /// The connection that is wanted has none, or is not there.
    #[error("no connection {wanted} with data; {}", choose(senders))]
    NoConnection {
        /// The number of the connection that is wanted.
        wanted: u64,
        /// The connections with data, by their numbers.
        senders: Vec<Sender>,
    },
    /// None is wanted of several.
    #[error("{} with data; {}", counted(senders.len() as u64, "connection"), choose(senders))]
    Several {
        /// The connections with data, by their numbers.
        senders: Vec<Sender>,
    },
}

impl WritesError {
    pub(super) fn no_connection(wanted: u64, senders: &[Sender]) -> Self {
        let senders = by_number(senders);
        Self::NoConnection { wanted, senders }
    }

    pub(super) fn several(senders: &[Sender]) -> Self {
        let senders = by_number(senders);
        Self::Several { senders }
    }
}

fn by_number(senders: &[Sender]) -> Vec<Sender> {
    let mut senders = senders.to_vec();
    senders.sort_by_key(|sender| sender.number);
    senders
}

fn choose(senders: &[Sender]) -> String {
    let mut text = "choose one with --connection N, of".to_owned();
    for sender in senders.iter().take(MOST) {
        text += &format!("\n{sender}");
    }
    if let Some(more @ 1..) = senders.len().checked_sub(MOST) {
        text += &format!("\nand {more} more, see `pillion-lab analyse --list`");
    }
    text
}
