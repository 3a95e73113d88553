use std::io;

/// Why sockets could not be sampled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not tell of its connections.
    #[error("ask the kernel for its TCP sockets: {0}; it needs CONFIG_INET_DIAG")]
    Ask(io::Error),
}
