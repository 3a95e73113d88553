use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::traffic::plan::ConfigError;

/// Why sending could not start or go on. What befalls a single stream later is in the report.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The congestion control cannot be used.
    #[error(
        "congestion control {name}: {source}; \
         `sysctl net.ipv4.tcp_available_congestion_control` lists what is loaded"
    )]
    Congestion {
        /// The name asked for.
        name: String,
        /// The kernel's answer.
        source: nix::Error,
    },
    /// pillion does not do what its socket option asks.
    #[error("pillion's socket option {option}: {source}{}", switch_remedy(source))]
    Switch {
        /// The option's name in `pillion.h`.
        option: &'static str,
        /// The answer.
        source: nix::Error,
    },
    /// A source port cannot be had.
    #[error("source port {}: {source}; does another process use it?", local.port())]
    Bind {
        /// The address asked for.
        local: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A connection failed.
    #[error(
        "connecting to {to}: {source} ({connected} of {streams} streams connected); \
         is the receiver running there?"
    )]
    Connect {
        /// The receiver's address.
        to: SocketAddr,
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Not all connections were established in time.
    #[error(
        "connecting to {to}: only {connected} of {streams} streams connected within {timeout:?}; \
         is the path up, and does the receiver accept?"
    )]
    ConnectTimeout {
        /// The receiver's address.
        to: SocketAddr,
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
        /// The limit.
        timeout: Duration,
    },
    /// Stopped by the caller before the barrier opened.
    #[error("stopped while {connected} of {streams} streams were connected, nothing sent")]
    Stopped {
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
    },
    /// No socket, epoll or timer could be had.
    #[error("{call}: {source}{}", remedy(source))]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's answer.
        source: nix::Error,
    },
}

impl SendError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Congestion { .. })
    }
}

fn switch_remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::ENOPROTOOPT => {
            "; no pillion is at work here: start `pillion attach`, or send beneath `pillion run`"
        }
        nix::Error::EPERM => "; the rules of the pillion at work here leave all connections alone",
        nix::Error::EINVAL => "; give at most 2147483647",
        _ => "",
    }
}

fn remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::EMFILE => "; raise the limit with `ulimit -n`",
        _ => "",
    }
}
