//! The maps of the pillions at work on this host, which nothing but their names tells from others'.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::Error;

/// The maps with this name, at most 15 bytes, and values of this size in bytes: another version of
/// pillion may keep something else under the same name.
///
/// # Errors
/// [`Error::MayNotList`] without the capability for what other processes keep; [`Error::System`].
pub(crate) fn find(name: &str, value_size: usize) -> Result<Vec<OwnedFd>, Error> {
    let mut maps = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: a system call that writes the next id, which lives across it.
        let result = unsafe { libbpf_sys::bpf_map_get_next_id(id, &raw mut id) };
        match -result {
            0 => {}
            libc::ENOENT => return Ok(maps),
            errno => return Err(may_not_list(errno)),
        }
        match map_by_id(id) {
            Ok(map) => maps.extend(is_it(map.as_fd(), name, value_size).then_some(map)),
            // It has just ended.
            Err(libc::ENOENT) => {}
            Err(errno) => return Err(may_not_list(errno)),
        }
    }
}

fn may_not_list(errno: i32) -> Error {
    match errno {
        libc::EPERM => Error::MayNotList,
        errno => Error::system("list the connections", io::Error::from_raw_os_error(errno)),
    }
}

fn is_it(map: BorrowedFd, name: &str, value_size: usize) -> bool {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: a system call that writes no more than the length stated.
    let result = unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length)
    };
    let named = info.name.map(|byte| byte.to_ne_bytes()[0]);
    let named = named.split(|byte| *byte == 0).next();
    result == 0 && named == Some(name.as_bytes()) && info.value_size as usize == value_size
}

/// Opens a map by the kernel's id; the error is the kernel's number.
fn map_by_id(id: u32) -> Result<OwnedFd, i32> {
    // SAFETY: a plain system call; the result is checked.
    let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) };
    if fd < 0 {
        return Err(-fd);
    }
    // SAFETY: a valid file descriptor, new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
