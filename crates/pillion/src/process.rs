//! This process: signals, file descriptors, privileges, and the helper that cleans up after it.

use std::{io, ptr};

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Uid, seteuid, setsid};
use pillion_bpf::host::interruption::{poll, retry};
use pillion_cli::helper_process;
use pillion_cli::settings::BadInput;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

// Signals that are read from a descriptor.

/// Blocks these signals and returns a descriptor to read them. Early signals are neither lost nor fatal.
pub fn receive_signals(signals: impl IntoIterator<Item = Signal>) -> Result<SignalFd> {
    let signals = block_set(signals)?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("receive signals")
}

/// Blocks these signals until [`receive_signals`].
pub fn block_signals(signals: impl IntoIterator<Item = Signal>) -> Result<()> {
    block_set(signals).map(drop)
}

fn block_set(signals: impl IntoIterator<Item = Signal>) -> Result<SigSet> {
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block().context("block signals")?;
    Ok(signals)
}

/// Reads a signal; `None` if interrupted.
pub fn read_signal(signals: &SignalFd) -> Result<Option<siginfo>> {
    match signals.read_signal() {
        Err(Errno::EINTR) => Ok(None),
        read => read.context("read a signal"),
    }
}

// Each attached device needs file descriptors. The usual limit of 1024 protects programs that use
// select(2): pillion does not, but the command of `run` may.

/// The limit of open files.
#[derive(Clone, Copy)]
pub struct Descriptors {
    /// Soft and hard limit at the start.
    initial: Option<(rlim_t, rlim_t)>,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub fn raise() -> Self {
        let initial = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = initial {
            // If that is refused, the initial limit stays.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { initial }
    }

    /// Restores the initial limit, for a command.
    pub fn restore(self) -> io::Result<()> {
        let Some((soft, hard)) = self.initial else {
            return Ok(());
        };
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(io::Error::from)
    }
}

// With a setuid bit, any user runs pillion with root's privileges. Only `run` supports that: it drops
// them before the command starts.

/// Returns true if the real and effective user differ.
pub fn is_setuid() -> bool {
    Uid::current() != Uid::effective()
}

/// Runs `act` with the caller's own privileges. Parsing options loads kernel modules, for example.
pub fn with_caller_privileges<T>(act: impl FnOnce() -> T) -> T {
    let effective = Uid::effective();
    let dropped = is_setuid() && seteuid(Uid::current()).is_ok();
    let result = act();
    if dropped {
        // The saved user id is still the effective one.
        let _ = seteuid(effective);
    }
    result
}

/// Refuses an option or command in setuid mode.
///
/// # Errors
/// [`BadInput`] with the remedy in setuid mode.
pub fn refuse_if_setuid(what: &str) -> Result<(), BadInput> {
    if is_setuid() {
        let remedy = "run it as root, or with sudo";
        return Err(BadInput(format!(
            "{what}: not allowed for a setuid pillion; {remedy}"
        )));
    }
    Ok(())
}

/// Refuses a binary with file capabilities: every user who may execute it would have them, and could
/// write any file with `--stats`.
///
/// # Errors
/// [`BadInput`] with the remedy, unless root runs it.
pub fn refuse_file_capabilities() -> Result<(), BadInput> {
    let (file, name) = (c"/proc/self/exe", c"security.capability");
    // SAFETY: both strings end with a zero byte, and a size of 0 reads no value.
    let size = unsafe { libc::getxattr(file.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) };
    if size > 0 && !Uid::current().is_root() {
        return Err(
            "the binary has file capabilities, which every user would share; remove them \
                    (setcap -r FILE), and run pillion as root, with sudo or as a service"
                .into(),
        );
    }
    Ok(())
}

// Capabilities after the start.

/// To attach to new devices, and to remove filters.
pub const FOR_DEVICES: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN];

/// To enter other network namespaces.
pub const FOR_NAMESPACES: [Capability; 2] = [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE];

/// To read and write files of other users.
pub const FOR_FILES: [Capability; 2] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// To load programs, in the new process of a hand-over.
pub const FOR_HANDOVER: [Capability; 1] = [Capability::CAP_PERFMON];

/// Drops all capabilities except `effective`, and `permitted` for a new process.
pub fn drop_capabilities(effective: &CapsHashSet, permitted: &[Capability]) {
    let permitted = effective.iter().chain(permitted).copied().collect();
    // Without CAP_SETPCAP the bounding set stays.
    let others = caps::read(None, CapSet::Bounding).unwrap_or_default();
    for other in others.difference(&permitted) {
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    set_capabilities(effective, &permitted);
}

/// Drops all capabilities of this thread except those for reading maps.
pub fn keep_read_capability() {
    // Linux before 5.19 requires it for reading maps.
    let needed = CapsHashSet::from([Capability::CAP_BPF]);
    set_capabilities(&needed, &needed);
}

fn set_capabilities(effective: &CapsHashSet, permitted: &CapsHashSet) {
    let set = || {
        let has = caps::read(None, CapSet::Permitted)?;
        let of = |it: &CapsHashSet| it.intersection(&has).copied().collect();
        caps::set(None, CapSet::Effective, &of(effective))?;
        caps::set(None, CapSet::Permitted, &of(permitted))
    };
    if let Err(error) = set() {
        log::warn!("capabilities not dropped: {error}");
    }
}

// Cgroups and filters outlive their process, and DSACKs of bundles in flight arrive after its end. A
// helper process waits for that end, even by `kill -9`, and cleans up.

/// Start of the log line after the cleanup helper was killed: cause and consequence.
pub const HELPER_KILLED: &str = "the cleanup helper (pillion-cleanup) was killed, so that a killed \
                                 pillion could leave programs attached:";

/// Handle of the cleanup helper; dropping it stops the helper without a cleanup.
pub struct CleanupHelper {
    process: OwnedFd,
    /// Pidfd of this process. The helper polls the same descriptor, so it must stay open.
    _this: OwnedFd,
}

impl AsFd for CleanupHelper {
    /// Returns a descriptor that is readable once the helper has exited.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for CleanupHelper {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
        let wait = || waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let _ = retry(wait);
    }
}

/// Starts the cleanup helper, with these capabilities only. It shares this process's descriptors: after
/// a kill, files and links stay open until `clean_up` closes them.
pub fn spawn_cleanup_helper(
    capabilities: &CapsHashSet,
    clean_up: impl FnOnce(),
) -> io::Result<CleanupHelper> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let helper = helper_process::spawn_sharing_files(c"pillion-cleanup", || {
        // A signal to pillion's process group must not kill the helper.
        let _ = setsid();
        drop_capabilities(capabilities, &[]);
        // The end of pillion also wakes a stopped helper.
        let _ = set_pdeathsig(Signal::SIGCONT);
        let mut this = [PollFd::new(this.as_fd(), PollFlags::POLLIN)];
        if poll(&mut this, None).is_ok() {
            helper_process::discard_standard_streams();
            clean_up();
        }
    })?;
    let helper = Pid::from_raw(helper.as_raw()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(helper, PidfdFlags::empty())?;
    Ok(CleanupHelper {
        process,
        _this: this,
    })
}
