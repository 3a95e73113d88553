//! Whether eBPF programs can answer socket options here.

use std::ptr;

/// True if the kernel lets programs at setsockopt(2) choose the error that the application gets
/// (Linux 5.18, commit b44123b4a3dc). Without that there is no switch, and all else works.
pub(crate) fn is_supported() -> bool {
    // SAFETY: a plain call; no options are given.
    let found = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCKOPT,
            libbpf_sys::BPF_FUNC_set_retval,
            ptr::null(),
        )
    };
    found == 1
}
