//! What is asked of pillion by its socket options.

use std::os::fd::OwnedFd;

use libc::c_int;
use pillion_bpf::host::pillion::{BUNDLE, MAX_PACKETS};
use pillion_bpf::host::socket_option;

use super::SendError;
use crate::traffic::plan::SocketOptions;

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
