use std::io;
use std::path::PathBuf;

use crate::host::libbpf::LoadError;
use crate::{Device, Hook};

/// Why the bundler failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such network device in this network namespace.
    #[error("no network device `{name}`; available: {known}")]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The names of the devices that exist.
        known: String,
    },
    /// No device is up (loopback is taken only when named).
    #[error("no network device is up; name one with --dev (loopback: --dev lo)")]
    NoDevice,
    /// The device's link header is unknown.
    #[error(
        "{name}: its packets start with neither an Ethernet nor an IP header; \
         name other devices with --dev"
    )]
    UnknownLinkHeader {
        /// The device's name.
        name: String,
    },
    /// The kernel's messages about some devices make no sense.
    #[error("cannot parse the kernel's messages about {count} network device(s){}: ignored", within(namespace.as_deref()))]
    Unreadable {
        /// How many devices the kernel's messages do not make sense of.
        count: usize,
        /// The devices' network namespace; `None` for the calling thread's.
        namespace: Option<String>,
    },
    /// There are more devices than this process may have descriptors for.
    #[error(
        "attached to at most {max} network devices{}: the limit of open files is {limit} \
         (raise the hard limit: `ulimit -Hn`, or LimitNOFILE= of a service)", within(namespace.as_deref())
    )]
    TooManyDevices {
        /// The devices' network namespace; `None` for the calling thread's.
        namespace: Option<String>,
        /// How many devices there is room for.
        max: usize,
        /// The limit of open files.
        limit: usize,
    },
    /// Another program removed the filters from a device.
    #[error("{device}: pillion's filters were removed")]
    FiltersRemoved {
        /// The device's name.
        device: String,
    },
    /// More than half of the segments for a device did not reach its program.
    #[error(
        "{device}: more than half of the segments do not reach pillion: {}",
        bypassed_by(*program)
    )]
    Bypassed {
        /// The device's name.
        device: String,
        /// The id of the tcx program that runs before pillion's, if any.
        program: Option<u32>,
    },
    /// Another program detached the programs from the cgroup.
    #[error("pillion's programs were detached from the cgroup")]
    Detached,
    /// The kernel takes no more programs at a device.
    #[error(
        "{device}: the kernel's limit of 63 programs for each direction is reached; detach one \
         (`bpftool net` lists them), leave the device out with --dev, or use --hook clsact"
    )]
    TooManyPrograms {
        /// The device's name.
        device: String,
    },
    /// A queueing discipline is where clsact would have to be.
    #[error(
        "{device} has the queueing discipline `ingress`, which excludes clsact: use \
         --hook tcx (Linux 6.6), leave the device out with --dev, or have the owner of its \
         filters put them at a clsact"
    )]
    IngressTaken {
        /// The name of the device with the discipline `ingress`.
        device: String,
    },
    /// No network namespace is called so.
    #[error(
        "no network namespace `{name}`: give a name under /run/netns (available: {known}) or a \
         file such as /proc/PID/ns/net"
    )]
    UnknownNamespace {
        /// The requested name.
        name: String,
        /// The names under `/run/netns`.
        known: String,
    },
    /// The file is not a network namespace.
    #[error("{name} is not a network namespace: give a file such as /proc/PID/ns/net")]
    NotANamespace {
        /// The file's name.
        name: String,
    },
    /// There are more network namespaces than the kernel's table holds.
    #[error(
        "{name}: the limit of {max} network namespaces is reached; start another \
         pillion for more"
    )]
    TooManyNamespaces {
        /// The user's name for the network namespace.
        name: String,
        /// How many network namespaces the table holds.
        max: u32,
    },
    /// The kernel refused to enter a network namespace for want of privilege.
    #[error(
        "enter the network namespace {name}: not permitted; run as root, or with the \
         capabilities CAP_SYS_ADMIN and, for that of a process, CAP_SYS_PTRACE as well"
    )]
    EnterNotPermitted {
        /// The user's name for the network namespace.
        name: String,
    },
    /// The kernel refused for want of privilege.
    #[error(
        "{action}: not permitted; run as root, or with the capabilities \
         CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// The failed action.
        action: String,
    },
    /// Reading other processes' maps requires one more capability.
    #[error(
        "list what other processes bundle: not permitted; run as root, or with the capability \
         CAP_SYS_ADMIN in addition to CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    ListNotPermitted,
    /// The kernel lacks a required feature.
    #[error("{action}: this kernel lacks {feature}; {remedy}")]
    Unsupported {
        /// The action that requires the feature.
        action: String,
        /// The missing feature.
        feature: &'static str,
        /// The remedy for the user.
        remedy: &'static str,
    },
    /// The kernel did not accept a program.
    #[error(
        "the kernel refused the eBPF programs: {reason}; `pillion check` lists missing features"
    )]
    Load {
        /// The last message of libbpf about the program.
        reason: String,
    },
    /// The rules do not fit into the kernel's table.
    #[error(
        "the rules require {needed} rows, but the kernel's table has {max}: one for each \
         combination of a rule's ports and peers; join neighbouring ports into ranges, and peers \
         into networks",
        max = crate::Policy::MAX_ROWS
    )]
    TooManyRules {
        /// Rows that all rules together need: the sum of [`Rule::rows`](crate::Rule::rows).
        needed: usize,
    },
    /// The kernel neither has this congestion control nor can load it.
    #[error("no congestion control `{name}`; the kernel offers: {known}")]
    UnknownCongestionControl {
        /// The requested name.
        name: String,
        /// The congestion controls that the kernel has.
        known: String,
    },
    /// No cgroup v2 hierarchy is mounted.
    #[error(
        "no cgroup v2 hierarchy is mounted; mount one: \
         mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified \
         (within `ip netns exec`, which hides it, at /sys/fs/cgroup itself; or from outside, `pillion \
         attach --netns NAME` serves the same connections)"
    )]
    NoCgroup2,
    /// A file of the cgroup file system could not be used.
    #[error("cgroup {path}: {source}", path = path.display())]
    Cgroup {
        /// The file or folder that could not be used.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The cgroup file system is mounted without the right to write, as it is in containers.
    #[error(
        "cgroup {path}: mounted read-only, but `pillion run` creates a cgroup; `pillion attach` \
         does not, or mount it for writing: mount -o remount,rw {mount}",
        path = path.display(), mount = crate::cgroup2_mount().unwrap_or_default().display()
    )]
    ReadOnlyCgroups {
        /// The folder that cannot be made.
        path: PathBuf,
    },
    /// A cgroup cannot be removed as long as another pillion's is below it.
    #[error(
        "cgroup {path}: another pillion is running in it; the cgroups above it remain until a \
         pillion starts after it has ended", path = path.display()
    )]
    CgroupInUse {
        /// The cgroup of the other pillion.
        path: PathBuf,
    },
    /// A cgroup for the command's process cannot be made below a threaded one.
    #[error(
        "cgroup {path} is threaded, so no process can have a separate cgroup below it; call \
         pillion from another cgroup, or use `pillion attach`", path = path.display()
    )]
    ThreadedCgroup {
        /// The cgroup that pillion was called in.
        path: PathBuf,
    },
    /// Another program is attached exclusively to the cgroup.
    #[error(
        "attach to the cgroup: another program is attached exclusively to it, or to one above it \
         (attached without BPF_F_ALLOW_MULTI); `bpftool cgroup tree` shows it"
    )]
    CgroupTaken,
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// The failed action.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
}

fn bypassed_by(program: Option<u32>) -> String {
    match program {
        Some(id) => format!("program {id} runs before it (`bpftool prog show id {id}`)"),
        None => "another program or filter ends the chain before it (`bpftool net`)".to_owned(),
    }
}

fn within(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |name| format!(" in {name}"))
}

impl Error {
    /// Attaching to a device by a hook has failed.
    pub(crate) fn at_device(device: &Device, hook: Hook, error: io::Error) -> Self {
        let action = format!("attach to {device} by {hook}");
        match (hook, error.raw_os_error()) {
            (Hook::Tcx, Some(libc::EINVAL | libc::EOPNOTSUPP)) => Self::Unsupported {
                action,
                feature: "tcx",
                remedy: "use Linux 6.6 or newer, or --hook clsact",
            },
            (Hook::Tcx, Some(libc::ERANGE)) => Self::TooManyPrograms {
                device: device.to_string(),
            },
            _ => Self::system(action, error),
        }
    }

    /// True if the user's input has to change, not the host.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::UnknownDevice { .. }
                | Self::NoDevice
                | Self::TooManyRules { .. }
                | Self::UnknownNamespace { .. }
                | Self::NotANamespace { .. }
        )
    }

    /// A failed system call; lack of privilege becomes [`Error::NotPermitted`].
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { action },
            _ => Self::System { action, source },
        }
    }
}

impl From<LoadError> for Error {
    fn from(refusal: LoadError) -> Self {
        match refusal {
            LoadError::NotPermitted => Self::NotPermitted {
                action: "load the eBPF programs".to_owned(),
            },
            LoadError::Reason(reason) => Self::Load { reason },
        }
    }
}
