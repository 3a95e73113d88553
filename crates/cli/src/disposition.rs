//! What becomes of a signal, as whoever started pillion has decided: `nohup`, or a shell.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

static BROKEN_PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Rust's runtime ignores SIGPIPE before `main`; what the loader calls comes earlier.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        BROKEN_PIPE_IGNORED.store(is_ignored_now(Signal::SIGPIPE), Ordering::Relaxed);
    }
    look
};

/// Was it ignored when pillion began? (As long as pillion has changed nothing about it.)
pub fn is_ignored(signal: Signal) -> bool {
    match signal {
        Signal::SIGPIPE => BROKEN_PIPE_IGNORED.load(Ordering::Relaxed),
        other => is_ignored_now(other),
    }
}

/// Has a file that may not grow (RLIMIT_FSIZE) be a failed write, and no more.
pub fn outlive_file_limit() -> nix::Result<()> {
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.map(drop)
}

fn is_ignored_now(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks, and changes nothing; zeroes are a value of this type.
    let action = unsafe {
        libc::sigaction(signal as i32, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}
