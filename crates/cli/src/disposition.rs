//! Dispositions of signals that pillion inherits, for example from `nohup` or a shell.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

static BROKEN_PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Reads the disposition before Rust's runtime ignores SIGPIPE: the loader calls it before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_DISPOSITION: extern "C" fn() = {
    extern "C" fn read() {
        BROKEN_PIPE_IGNORED.store(is_ignored_now(Signal::SIGPIPE), Ordering::Relaxed);
    }
    read
};

/// Returns true if the signal was ignored at the start, unless pillion has changed that since.
pub fn is_ignored(signal: Signal) -> bool {
    match signal {
        Signal::SIGPIPE => BROKEN_PIPE_IGNORED.load(Ordering::Relaxed),
        other => is_ignored_now(other),
    }
}

/// Ignores SIGXFSZ, so that a write above RLIMIT_FSIZE fails and does not end the process.
pub fn ignore_file_limit_signal() -> nix::Result<()> {
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.map(drop)
}

fn is_ignored_now(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only reads the disposition; zeroes are a valid value of this type.
    let action = unsafe {
        libc::sigaction(signal as i32, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}
