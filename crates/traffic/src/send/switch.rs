//! pillion's own socket options, as `include/pillion.h` numbers them.

use std::os::fd::OwnedFd;

use libc::c_int;
use pillion_host::socket_option;

use super::SendError;
use crate::plan::SocketOptions;

const BUNDLE: c_int = 0x7069_6c01;
const MAX_PACKETS: c_int = 0x7069_6c02;

/// Says to pillion what the options ask of it.
pub(super) fn set(socket: &OwnedFd, options: &SocketOptions) -> Result<(), SendError> {
    let set = |option, number, value: c_int| {
        let set = socket_option::set(socket, (libc::IPPROTO_TCP, number), &value);
        set.map_err(|source| SendError::Switch { option, source })
    };
    if let Some(on) = options.pillion {
        set("PILLION_BUNDLE", BUNDLE, on.into())?;
    }
    if let Some(limit) = options.max_packets {
        let limit = c_int::try_from(limit).unwrap_or(-1);
        set("PILLION_MAX_PACKETS", MAX_PACKETS, limit)?;
    }
    Ok(())
}
