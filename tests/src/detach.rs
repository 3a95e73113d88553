use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Detaches a link by its id, whoever holds it, as `bpftool link detach` does; false for a kind that
/// cannot be detached, as an iterator.
///
/// # Panics
/// When there is no such link.
#[must_use]
pub fn detach_link(id: u32) -> bool {
    // SAFETY: a plain system call.
    let link = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
    assert!(
        link >= 0,
        "link {id}: {}",
        io::Error::from_raw_os_error(-link)
    );
    // SAFETY: a new descriptor that nobody else owns.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: a plain system call on a descriptor.
    match unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) } {
        0 => true,
        error if error == -libc::EOPNOTSUPP => false,
        error => panic!("link {id}: {}", io::Error::from_raw_os_error(-error)),
    }
}
