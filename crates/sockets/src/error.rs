use std::io;
use std::path::PathBuf;

/// Why sockets could not be sampled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not tell.
    #[error("ask the kernel for its TCP sockets: {0}; it needs CONFIG_INET_DIAG")]
    Ask(io::Error),
    /// The samples could not be written.
    #[error("write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}
