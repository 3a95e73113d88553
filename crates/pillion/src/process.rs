//! This process: signals, file descriptors, privileges, and the helper that cleans up after it.

use std::io;

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Uid, seteuid, setsid};
use pillion_bpf::host::interruption::{poll, retry};
use pillion_cli::beside;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

// Signals that are read, like a file, rather than acted on at once.

/// Has these signals wait to be read, from now on: one that comes early must not be lost, nor kill.
pub fn receive_signals(signals: impl IntoIterator<Item = Signal>) -> Result<SignalFd> {
    let signals = block_set(signals)?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("receive signals")
}

/// Has these signals wait until they are received: they mean nothing yet.
pub fn block_signals(signals: impl IntoIterator<Item = Signal>) -> Result<()> {
    block_set(signals).map(drop)
}

fn block_set(signals: impl IntoIterator<Item = Signal>) -> Result<SigSet> {
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block().context("block signals")?;
    Ok(signals)
}

/// The signal that has come.
pub fn read_signal(signals: &SignalFd) -> Result<Option<siginfo>> {
    match signals.read_signal() {
        Err(Errno::EINTR) => Ok(None),
        read => read.context("read a signal"),
    }
}

// Each device that is bundled on takes file descriptors. The limit that is usual, 1024, is there
// for programs that use select(2), which pillion does not and the command may.

/// How many files this process may have open.
#[derive(Clone, Copy)]
pub struct Descriptors {
    /// What it was given.
    given: Option<(rlim_t, rlim_t)>,
}

impl Descriptors {
    /// As many as it may ask for, from now on.
    pub fn raise() -> Self {
        let given = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = given {
            // Where that is refused, the given limit does.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { given }
    }

    /// As many as it was given, which is for what it is about to execute.
    pub fn lower(self) -> io::Result<()> {
        let Some((soft, hard)) = self.given else {
            return Ok(());
        };
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(io::Error::from)
    }
}

// A setuid bit lends root's privilege to whoever calls: for `run`, which gives it up again
// before the command begins, and for nothing else.

/// Is the privilege not the caller's own?
pub fn is_setuid() -> bool {
    Uid::current() != Uid::effective()
}

/// Does something with no more than the caller's own privilege: of a command line too, parts are tried
/// out in the kernel.
pub fn as_the_caller<T>(act: impl FnOnce() -> T) -> T {
    let lent = Uid::effective();
    let given_back = is_setuid() && seteuid(Uid::current()).is_ok();
    let result = act();
    if given_back {
        // The saved user is still the lent one.
        let _ = seteuid(lent);
    }
    result
}

/// Refuses what would let the caller do more than `run` does.
///
/// # Errors
/// [`BadInput`] if the privilege is lent.
pub fn refuse_if_setuid(what: &str) -> Result<(), BadInput> {
    if is_setuid() {
        let remedy = "call it as root, or by sudo";
        return Err(BadInput(format!(
            "{what}: not with a setuid pillion; {remedy}"
        )));
    }
    Ok(())
}

// Capabilities while bundling: only those that following devices takes.

/// To attach to devices that come.
const TO_FOLLOW: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN];

/// To enter the network namespaces that are named, and those of processes.
const TO_ENTER: [Capability; 2] = [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE];

/// To read and write files that another user's folder holds.
const FOR_FILES: [Capability; 2] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// To load programs, which a successor does.
const TO_SUCCEED: Capability = Capability::CAP_PERFMON;

/// Gives up, for good, what neither this process nor a successor needs from here on.
pub fn keep_what_following_takes(enters_namespaces: bool, has_files: bool) {
    let mut effective = CapsHashSet::from(TO_FOLLOW);
    if enters_namespaces {
        effective.extend(TO_ENTER);
    }
    if has_files {
        effective.extend(FOR_FILES);
    }
    let mut permitted = effective.clone();
    permitted.insert(TO_SUCCEED);
    // Who may not change the bounding set has little to lose.
    let others = caps::read(None, CapSet::Bounding).unwrap_or_default();
    for other in others.difference(&permitted) {
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    keep(&effective, &permitted);
}

/// Leaves to a thread of this process what reading takes.
pub fn only_read() {
    // Kernels before 5.19 want it of all that read maps.
    let reading = CapsHashSet::from([Capability::CAP_BPF]);
    keep(&reading, &reading);
}

fn keep(effective: &CapsHashSet, permitted: &CapsHashSet) {
    let kept = || {
        let has = caps::read(None, CapSet::Permitted)?;
        let of = |set: &CapsHashSet| set.intersection(&has).copied().collect();
        caps::set(None, CapSet::Effective, &of(effective))?;
        caps::set(None, CapSet::Permitted, &of(permitted))
    };
    if let Err(error) = kept() {
        say_line!("pillion: keeps all capabilities: {error}");
    }
}

// Cgroups and filters outlive their process, and reports of bundles in flight still arrive after its
// end. So a second process waits for that end, also by `kill -9`, and cleans up.

/// Handle of the cleanup helper; dropping it ends the helper, without a cleanup.
pub struct CleanupHelper {
    process: OwnedFd,
    /// Pidfd of this process. The helper polls the same descriptor, so it must stay open.
    _this: OwnedFd,
}

impl Drop for CleanupHelper {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
        let its_end = || waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let _ = retry(its_end);
    }
}

/// Starts the cleanup helper. It shares this process's descriptors: after a kill, files and links stay open
/// until `clean_up` closes them.
pub fn start_cleanup(clean_up: impl FnOnce()) -> io::Result<CleanupHelper> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let helper = beside::start_sharing(c"pillion-janitor", || {
        // A signal to pillion's process group must not kill the helper.
        let _ = setsid();
        keep_what_following_takes(true, true);
        let mut this = [PollFd::new(this.as_fd(), PollFlags::POLLIN)];
        if poll(&mut this, None).is_ok() {
            beside::leave_standard_streams();
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
