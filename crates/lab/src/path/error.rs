//! What can go wrong before a path runs.

use std::io;

/// Why a TAP device or a path could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A field of the configuration is outside its range.
    #[error("path: {field} is {value}; it must be {range}")]
    OutOfRange {
        /// The field, with its direction, such as `forward.loss`.
        field: String,
        /// The value given for the field.
        value: String,
        /// The values allowed for the field.
        range: &'static str,
    },

    /// The kernel would refuse, or change, this device name.
    #[error(
        "TAP device name {0:?}: use 1 to 15 bytes without '/', ':', '%', white space or control characters"
    )]
    Name(String),

    /// `/dev/net/tun` cannot be opened.
    #[error("cannot open /dev/net/tun: {0}; run as root, with the kernel module tun loaded")]
    Tun(io::Error),

    /// The kernel refused to create the device.
    #[error("cannot create TAP device {name}: {cause}; run as root, and use a name not yet taken")]
    Create {
        /// The name of the device.
        name: String,
        /// What the kernel said of the device.
        cause: io::Error,
    },

    /// The path's thread, or the event that stops it, could not be made.
    #[error("cannot start the path's thread: {0}; raise the limits on open files and threads")]
    Thread(io::Error),
}
