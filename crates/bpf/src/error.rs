use std::io;
use std::path::PathBuf;

use crate::host::libbpf::Refusal;
use crate::{Device, Hook};

/// Why the bundler could not do what was asked.
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
    /// No device is up (loopback is taken only when named).
    #[error("no network device is up; name one with --dev (loopback: --dev lo)")]
    NoDevice,
    /// The device's packets begin with something that is not known here.
    #[error(
        "{name}: its packets begin with neither an Ethernet nor an IP header; \
         name other devices with --dev"
    )]
    UnknownLinkHeader {
        /// The device's name.
        name: String,
    },
    /// The kernel's messages about some devices make no sense.
    #[error("what the kernel says of {count} network device(s){} makes no sense: left out", within(namespace.as_deref()))]
    Unreadable {
        /// How many devices the kernel's messages do not make sense of.
        count: usize,
        /// The devices' network namespace; `None` for the calling thread's.
        namespace: Option<String>,
    },
    /// There are more devices than this process may have descriptors for.
    #[error(
        "no more than {most} network devices{} are bundled on: {limit} files may be open at once \
         (raise the hard limit: `ulimit -Hn`, or LimitNOFILE= of a service)", within(namespace.as_deref())
    )]
    NoRoom {
        /// The devices' network namespace; `None` for the calling thread's.
        namespace: Option<String>,
        /// How many devices there is room for.
        most: usize,
        /// The limit of open files.
        limit: usize,
    },
    /// Somebody has removed the programs from a device.
    #[error("{device}: pillion's filters were removed")]
    TakenAway {
        /// The device's name.
        device: String,
    },
    /// Somebody has detached the programs from the cgroup.
    #[error("pillion's programs were detached from the cgroup")]
    Detached,
    /// The kernel takes no more programs at a device.
    #[error(
        "{device}: as many programs stand at it as the kernel takes, 63 for each direction; end one \
         (`bpftool net` lists them), leave the device out with --dev, or use --hook clsact"
    )]
    NoPlace {
        /// The device's name.
        device: String,
    },
    /// A queueing discipline is where clsact would have to be.
    #[error(
        "{device} has the queueing discipline `ingress`, which leaves no place for clsact: use \
         --hook tcx (Linux 6.6), leave the device out with --dev, or have the owner of its \
         filters put them at a clsact"
    )]
    IngressTaken {
        /// The name of the device with the discipline `ingress`.
        device: String,
    },
    /// No network namespace is called so.
    #[error(
        "no network namespace `{name}`: give a name under /run/netns (there: {known}) or a \
         file, as /proc/PID/ns/net of a process that runs"
    )]
    UnknownNamespace {
        /// The network namespace's name that was asked for.
        name: String,
        /// The names under `/run/netns`.
        known: String,
    },
    /// The file is no network namespace.
    #[error("{name} is no network namespace: give a file such as /proc/PID/ns/net")]
    NotANamespace {
        /// The file that is no network namespace.
        name: String,
    },
    /// There are more network namespaces than the kernel's table holds.
    #[error(
        "{name} is a network namespace too many: {most} can be served at once; start another \
         pillion for more"
    )]
    TooManyNamespaces {
        /// What the user calls the network namespace.
        name: String,
        /// How many network namespaces the table holds.
        most: u32,
    },
    /// The kernel refused to enter a network namespace for want of privilege.
    #[error(
        "enter the network namespace {name}: not permitted; run as root, or with the \
         capabilities CAP_SYS_ADMIN and, for that of a process, CAP_SYS_PTRACE as well"
    )]
    MayNotEnter {
        /// What the user calls the network namespace.
        name: String,
    },
    /// The kernel refused for want of privilege.
    #[error(
        "{action}: not permitted; run as root, or with the capabilities \
         CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// What was being done.
        action: String,
    },
    /// What other processes keep in the kernel takes one more capability.
    #[error(
        "list what other processes bundle: not permitted; run as root, or with the capability \
         CAP_SYS_ADMIN beside CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    MayNotList,
    /// The kernel lacks what is needed.
    #[error("{action}: this kernel lacks {feature}; {remedy}")]
    Unsupported {
        /// What was being done when the feature was found missing.
        action: String,
        /// The missing feature.
        feature: &'static str,
        /// What the user should do about the missing feature.
        remedy: &'static str,
    },
    /// The kernel did not accept a program.
    #[error("the kernel refused the eBPF programs: {reason}; `pillion check` says what is missing")]
    Load {
        /// What libbpf said last about the program.
        reason: String,
    },
    /// The rules do not fit into the kernel's table.
    #[error(
        "the rules take {needed} rows of {most}, one for each combination of a rule's ports \
         and peers; join neighbouring ports into ranges, and peers into networks",
        most = crate::Policy::MAX_ROWS
    )]
    TooManyRules {
        /// Rows that all rules together need: the sum of [`Rule::rows`](crate::Rule::rows).
        needed: usize,
    },
    /// The kernel has no such congestion control, and can load none.
    #[error("no congestion control `{name}`; the kernel offers: {known}")]
    UnknownCongestionControl {
        /// The congestion control's name that was asked for.
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
        /// What the kernel said of the file or folder.
        source: io::Error,
    },
    /// The cgroup file system is mounted without the right to write, as it is in containers.
    #[error(
        "cgroup {path}: mounted read-only, and `pillion run` needs one of its own; `pillion attach` \
         needs none, or mount it for writing: mount -o remount,rw {mount}",
        path = path.display(), mount = crate::cgroup2_mount().unwrap_or_default().display()
    )]
    ReadOnlyCgroups {
        /// The folder that cannot be made.
        path: PathBuf,
    },
    /// A cgroup cannot be removed as long as another pillion's is below it.
    #[error(
        "cgroup {path}: another pillion is at work in it; the cgroups above it stay until a \
         pillion begins after its end", path = path.display()
    )]
    CgroupInUse {
        /// The cgroup of the other pillion.
        path: PathBuf,
    },
    /// A cgroup for the command's process cannot be made below a threaded one.
    #[error(
        "cgroup {path} is threaded, and no process can have a cgroup of its own below it; call \
         pillion from another cgroup, or use `pillion attach`", path = path.display()
    )]
    ThreadedCgroup {
        /// The cgroup that pillion was called in.
        path: PathBuf,
    },
    /// Somebody else's program excludes all others from the cgroup.
    #[error(
        "attach to the cgroup: another program has it, or one above it, for itself alone \
         (attached without BPF_F_ALLOW_MULTI); `bpftool cgroup tree` tells which"
    )]
    CgroupTaken,
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
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
                remedy: "it came with Linux 6.6; --hook clsact does without",
            },
            (Hook::Tcx, Some(libc::ERANGE)) => Self::NoPlace {
                device: device.to_string(),
            },
            _ => Self::system(action, error),
        }
    }

    /// Whether what was asked for has to change, rather than the machine that it was asked of.
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

    /// A failed system call, with want of privilege told apart.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { action },
            _ => Self::System { action, source },
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotPermitted => Self::NotPermitted {
                action: "load the eBPF programs".to_owned(),
            },
            Refusal::Because(reason) => Self::Load { reason },
        }
    }
}
