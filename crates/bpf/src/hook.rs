use std::fmt;

use clap::ValueEnum;

/// Where in a device's path the programs stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// Linux 6.6: links, which end with the process
    Tcx,
    /// The older way: filters of the clsact queueing discipline
    Clsact,
}

impl Hook {
    /// The best hook that this kernel has.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        /// Interface index of the loopback device of every network namespace.
        const LOOPBACK: i32 = 1;
        let mut programs = 0;
        // SAFETY: asks for the number of programs alone, which lives across the call.
        let result = unsafe {
            libbpf_sys::bpf_prog_query(
                LOOPBACK,
                libbpf_sys::BPF_TCX_INGRESS,
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut programs,
            )
        };
        if result == -libc::EINVAL {
            Self::Clsact
        } else {
            Self::Tcx
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}
