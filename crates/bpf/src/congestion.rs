use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::str::FromStr;

use nix::errno::Errno;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};
use serde::{Serialize, Serializer};

use crate::Error;
use crate::contract::types;

/// Bytes for a name, its final zero included: the last field of the programs' struct has them.
const NAME_BYTES: usize =
    size_of::<types::tcp_options>() - std::mem::offset_of!(types::tcp_options, congestion);

/// The name of a congestion control: 1 to 15 visible ASCII characters. The kernel may not have it;
/// see [`CongestionControl::find`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CongestionControl([u8; NAME_BYTES]);

impl CongestionControl {
    /// The congestion control of this name, if the kernel has it, or can load it.
    ///
    /// Restricted ones (`net.ipv4.tcp_allowed_congestion_control`) are found as well, because the
    /// restriction applies to programs without CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCongestionControl`], which lists the available ones.
    pub fn find(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownCongestionControl {
            name: name.to_owned(),
            known: available().join(", "),
        };
        let found: Self = name.parse().map_err(|_| unknown())?;
        match found.probe() {
            Err(Errno::ENOENT) => Err(unknown()),
            // Restricted, or a failure that does not concern the name.
            _ => Ok(found),
        }
    }

    /// Sets the congestion control on a socket of its own, which has the kernel load a module where
    /// it needs one.
    fn probe(self) -> nix::Result<()> {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        setsockopt(&socket, TcpCongestion, &OsString::from(self.as_str()))
    }

    /// The congestion control's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or(&[]);
        str::from_utf8(name).unwrap_or("")
    }

    pub(crate) fn raw(self) -> [i8; NAME_BYTES] {
        self.0.map(u8::cast_signed)
    }

    pub(crate) fn from_raw(raw: &[i8; NAME_BYTES]) -> Option<Self> {
        let bytes = raw.map(i8::cast_unsigned);
        let name = bytes.split(|byte| *byte == 0).next()?;
        str::from_utf8(name).ok()?.parse().ok()
    }
}

/// The congestion controls that the kernel has now; it may be able to load others.
#[must_use]
pub fn available() -> Vec<String> {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// A text that no congestion control can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 15 visible ASCII characters")]
pub struct CongestionControlError;

impl FromStr for CongestionControl {
    type Err = CongestionControlError;

    fn from_str(name: &str) -> Result<Self, CongestionControlError> {
        let mut bytes = [0; NAME_BYTES];
        let fits = !name.is_empty() && name.len() < NAME_BYTES;
        if !fits || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CongestionControlError);
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self(bytes))
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Serialize for CongestionControl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_name_is_stored_unchanged() {
        for name in ["reno", "a", "fifteen-letters"] {
            let control: CongestionControl = name.parse().unwrap();
            assert_eq!(control.as_str(), name);
            assert_eq!(CongestionControl::from_raw(&control.raw()), Some(control));
        }
    }

    #[test]
    fn invalid_congestion_control_name_is_rejected() {
        for name in ["", "sixteen--letters", "two words", "n\0l", "ü"] {
            assert!(name.parse::<CongestionControl>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn unknown_congestion_control_error_lists_available() {
        let message = CongestionControl::find("nosuch").unwrap_err().to_string();
        assert!(
            message.contains("`nosuch`") && message.contains("reno"),
            "{message}"
        );
        assert_eq!(CongestionControl::find("reno").unwrap().as_str(), "reno");
    }
}
