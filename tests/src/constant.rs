//! Programs that return a constant, whatever they are shown.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_sys::{bpf_attach_type, bpf_insn, bpf_prog_load, bpf_prog_load_opts, bpf_prog_type};
use pillion_bpf::host::interruption::without_signals;

/// Loads a program of this name that lets sockets of a sockmap have all that they receive.
///
/// # Panics
/// When the kernel refuses.
#[must_use]
pub fn load_verdict(name: &CStr) -> OwnedFd {
    const SK_PASS: i32 = 1;
    load(
        libbpf_sys::BPF_PROG_TYPE_SK_SKB,
        libbpf_sys::BPF_SK_SKB_VERDICT,
        name,
        SK_PASS,
    )
}

pub(crate) fn load(
    kind: bpf_prog_type,
    attach: bpf_attach_type,
    name: &CStr,
    outcome: i32,
) -> OwnedFd {
    const LOAD_RESULT: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let instruction = |code, imm| bpf_insn {
        code,
        imm,
        ..Default::default()
    };
    let instructions = [instruction(LOAD_RESULT, outcome), instruction(EXIT, 0)];
    let options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        expected_attach_type: attach,
        ..Default::default()
    };
    // SAFETY: name, instructions and options outlive the call, and their lengths are stated.
    own_fd(without_signals(|| unsafe {
        bpf_prog_load(
            kind,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            (&raw const options).cast_mut(),
        )
    }))
}

pub(crate) fn own_fd(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    // SAFETY: it is new, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
