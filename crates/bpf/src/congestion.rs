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
const ROOM: usize =
    size_of::<types::companions>() - std::mem::offset_of!(types::companions, congestion);

/// The name of a congestion control: 1 to 15 visible ASCII characters. That the kernel has
/// it is not said by that; see [`CongestionControl::find`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CongestionControl([u8; ROOM]);

impl CongestionControl {
    /// The congestion control of this name, if the kernel has it, or can load it.
    ///
    /// One that the host restricts (`net.ipv4.tcp_allowed_congestion_control`) is found as
    /// well: the restriction is on programs without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`Error::UnknownCongestionControl`], which names those there are.
    pub fn find(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownCongestionControl {
            name: name.to_owned(),
            known: offered().join(", "),
        };
        let found: Self = name.parse().map_err(|_| unknown())?;
        match found.try_out() {
            Err(Errno::ENOENT) => Err(unknown()),
            // Restricted; another failure of the trial says nothing of the name.
            _ => Ok(found),
        }
    }

    /// Sets the congestion control on a socket of its own, which has the kernel load a module where
    /// it needs one.
    fn try_out(self) -> nix::Result<()> {
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

    pub(crate) fn raw(self) -> [i8; ROOM] {
        self.0.map(u8::cast_signed)
    }

    pub(crate) fn from_raw(raw: &[i8; ROOM]) -> Option<Self> {
        let bytes = raw.map(i8::cast_unsigned);
        let name = bytes.split(|byte| *byte == 0).next()?;
        str::from_utf8(name).ok()?.parse().ok()
    }
}

/// The congestion controls that the kernel has now; it may be able to load others.
#[must_use]
pub fn offered() -> Vec<String> {
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
        let mut bytes = [0; ROOM];
        let fits = !name.is_empty() && name.len() < ROOM;
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
    fn a_name_is_kept_as_it_is() {
        for name in ["reno", "a", "fifteen-letters"] {
            let control: CongestionControl = name.parse().unwrap();
            assert_eq!(control.as_str(), name);
            assert_eq!(CongestionControl::from_raw(&control.raw()), Some(control));
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for name in ["", "sixteen--letters", "two words", "n\0l", "ü"] {
            assert!(name.parse::<CongestionControl>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn of_an_unknown_one_the_error_names_those_there_are() {
        let said = CongestionControl::find("nosuch").unwrap_err().to_string();
        assert!(said.contains("`nosuch`") && said.contains("reno"), "{said}");
        assert_eq!(CongestionControl::find("reno").unwrap().as_str(), "reno");
    }
}
