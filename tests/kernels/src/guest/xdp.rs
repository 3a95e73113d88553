use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_insn};
use libbpf_rs::{Xdp, XdpFlags};
use nix::net::if_::if_nametoindex;
use pillion_lab::Namespace;

/// Puts a generic XDP program that passes every packet to a namespace's device.
pub fn pass_all(namespace: &Namespace, device: &str) -> Result<(), String> {
    let failed = |error: String| format!("XDP at {device}: {error}");
    let program = load().map_err(failed)?;
    let attached = namespace.enter(|| {
        let index = if_nametoindex(device).map_err(|errno| errno.to_string())?;
        let xdp = Xdp::new(program.as_fd());
        let attached = xdp.attach(index.cast_signed(), XdpFlags::SKB_MODE);
        attached.map_err(|error| error.to_string())
    });
    attached
        .map_err(|error| failed(error.to_string()))?
        .map_err(failed)
}

/// `return XDP_PASS`.
fn load() -> Result<OwnedFd, String> {
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let mut pass = bpf_insn {
        code: MOVE,
        imm: libbpf_sys::XDP_PASS.cast_signed(),
        ..bpf_insn::default()
    };
    pass.set_dst_reg(0);
    let exit = bpf_insn {
        code: EXIT,
        ..bpf_insn::default()
    };
    let program = [pass, exit];
    // SAFETY: all pointers are valid for the call; libbpf allows null options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"pass_all".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(-fd).to_string());
    }
    // SAFETY: libbpf just opened it for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
