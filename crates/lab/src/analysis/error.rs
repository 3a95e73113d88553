use pillion_trace::Endpoint;
use pillion_trace::input::{InputError, Warning};
use thiserror::Error;

/// Why traces cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Both are to come from one stream.
    #[error("both traces cannot come from standard input; name a file for one")]
    OneInput,
    /// One cannot be read, or is none.
    #[error(transparent)]
    Input(#[from] InputError),
    /// One broke off or is damaged, where nothing but the whole of it will do.
    #[error("{name}: {warning}")]
    Damaged {
        /// What the file is called.
        name: String,
        /// The first damage, and where.
        warning: Warning,
    },
}

/// Why there is nothing to tell of a byte.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// There are fewer connections.
    #[error("there is no connection {connection} in the trace; --list shows {connections}")]
    NoConnection {
        /// The one that was asked for.
        connection: u64,
        /// How many there are.
        connections: u64,
    },
    /// The stream does not have the byte.
    #[error(
        "the trace shows no such byte of connection {connection} from {sender}; it shows {there}",
        there = shown(*.bytes)
    )]
    NoByte {
        /// The connection's number.
        connection: u64,
        /// Whose stream it is.
        sender: Endpoint,
        /// The last byte that the trace shows, counted from 1; 0 if it shows none.
        bytes: i64,
    },
}

fn shown(bytes: i64) -> String {
    match bytes {
        ..=0 => "none".to_owned(),
        bytes => format!("bytes 1 to {bytes}"),
    }
}
