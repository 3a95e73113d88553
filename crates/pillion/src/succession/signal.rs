//! The signal by which a successor ends the one that it succeeds, told from others.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, pid_t, uid_t};
use nix::sys::signalfd::siginfo;
use nix::unistd::{Pid, Uid};

/// Is it a successor that sends this signal? It adds its process id, as `kill` does not.
pub fn is_successors(signal: &siginfo) -> bool {
    signal.ssi_code == libc::SI_QUEUE && signal.ssi_int == signal.ssi_pid.cast_signed()
}

/// Ends a process as its successor; an error if it has ended.
pub fn end(process: BorrowedFd) -> io::Result<()> {
    let own = Pid::this().as_raw();
    let said = Said {
        signo: libc::SIGTERM,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: own,
        uid: Uid::current().as_raw(),
        value: own as usize,
        unused: [0; 12],
    };
    let process = process.as_raw_fd();
    let said = &raw const said;
    // SAFETY: a system call that reads a structure of the kernel's, which lives across it.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGTERM, said, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's `siginfo_t` of a queued signal, on 64-bit machines.
#[repr(C, align(8))]
struct Said {
    signo: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: pid_t,
    uid: uid_t,
    value: usize,
    unused: [u64; 12],
}

const _: () = assert!(size_of::<Said>() == size_of::<libc::siginfo_t>());
