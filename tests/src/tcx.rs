use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

/// Has a program see a device's packets, behind those that are attached already, for as long as
/// what is returned is there; `place` is `BPF_TCX_EGRESS` or `BPF_TCX_INGRESS`.
pub(crate) fn attach(program: &OwnedFd, device: &str, place: u32) -> OwnedFd {
    let index = if_nametoindex(device).expect("the device").cast_signed();
    // SAFETY: a system call on a descriptor and an interface index; no options.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, place, std::ptr::null()) };
    assert!(link >= 0, "the tests' programs attach: {link}");
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(link) }
}
