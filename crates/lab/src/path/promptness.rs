//! Asks the kernel to run the calling thread as soon as it wakes.

use nix::sys::prctl;

/// Makes the calling thread's sleeps end on time and lets the thread go before every ordinary one,
/// as the kernel's own emulator, which runs in softirqs, does. Without these a busy neighbour
/// delays frames by milliseconds. Either may be refused (a container without `CAP_SYS_NICE`); the
/// path then works as well as the neighbours let it, and the ledger's delay errors show how well
/// that is.
pub(crate) fn run_promptly() {
    // By default a sleep may end 50 µs late.
    let _ = prctl::set_timerslack(1);
    let _ = run_before_ordinary_threads();
}

/// Gives the calling thread a real-time priority. The kernel keeps 5 % of the time for ordinary
/// threads even when it never sleeps.
fn run_before_ordinary_threads() -> nix::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: reads one sched_param, which lives across the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) };
    nix::errno::Errno::result(result).map(drop)
}
