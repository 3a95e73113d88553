use std::io;

use pillion_bpf::host::libbpf::Refusal;

/// Why a queue could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such network device in this network namespace.
    #[error("no network device `{name}` here; there are: {known}")]
    UnknownDevice {
        /// The device's name that was asked for.
        name: String,
        /// The names of the devices that exist.
        known: String,
    },
    /// The kernel refused for want of privilege.
    #[error(
        "watch the queue: not permitted; run as root, or with the capabilities CAP_BPF and \
         CAP_PERFMON"
    )]
    NotPermitted,
    /// The kernel did not accept the programs.
    #[error(
        "the kernel refused the queue probe: {reason}; it needs Linux 5.17 with \
         CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"
    )]
    Load {
        /// What libbpf said about the programs.
        reason: String,
    },
    /// What was seen could not be written down.
    #[error("write the queue's events: {0}")]
    Write(io::Error),
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::UnknownDevice { .. })
    }

    /// A failed system call, with want of privilege told apart.
    pub(crate) fn system(action: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            _ => Self::System { action, source },
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotPermitted => Self::NotPermitted,
            Refusal::Because(reason) => Self::Load { reason },
        }
    }
}
