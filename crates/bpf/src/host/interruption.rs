//! System calls that a signal may interrupt (`EINTR`): in a process with signal handlers, and, on a
//! socket with a timeout, in any process that is stopped and continued (signal(7)).

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeSpec;

/// Repeats a system call for as long as signals interrupt it.
///
/// # Errors
/// Any other error of the call.
pub fn retry<T, E: Into<io::Error>>(mut call: impl FnMut() -> Result<T, E>) -> io::Result<T> {
    loop {
        match call().map_err(Into::into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Waits until a file is ready, or until the timeout, regardless of signals. Returns the number of
/// ready files. Without a timeout it waits forever.
///
/// # Errors
///
/// Those of poll(2), but never `EINTR`.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> nix::Result<usize> {
    let start = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        match ppoll(fds, left.map(TimeSpec::from), None) {
            Err(Errno::EINTR) if left.is_none_or(|left| !left.is_zero()) => {}
            Err(Errno::EINTR) => return Ok(0),
            ready => return ready.map(|count| count as usize),
        }
    }
}

/// Blocks the signals of this thread during a call that cannot be repeated often enough: the kernel
/// gives up the verification of a program (`EAGAIN`) when a signal is pending, and libbpf tries five
/// times.
pub fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = call();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    result
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use nix::poll::PollFlags;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, Signal, sigaction};

    use super::*;

    extern "C" fn ignore(_: libc::c_int) {}

    /// Interrupts the calling thread every millisecond while `work` runs.
    fn interrupted<T>(work: impl FnOnce() -> T) -> T {
        let handler = SigHandler::Handler(ignore);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGURG, &action) }.unwrap();
        // SAFETY: a plain call.
        let thread = unsafe { libc::pthread_self() };
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(thread, libc::SIGURG) };
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let result = work();
            is_done.store(true, Ordering::Relaxed);
            result
        })
    }

    #[test]
    fn interrupted_recv_is_retried() {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let (interrupted_once, received) = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                far.send(b"text").unwrap();
            });
            interrupted(|| {
                let mut bytes = [0; 8];
                let first = near.recv(&mut bytes);
                (first, retry(|| near.recv(&mut bytes)))
            })
        });
        let error = interrupted_once.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(received.unwrap(), 4);
    }

    #[test]
    fn interrupted_poll_returns_at_timeout() {
        let (near, _far) = UnixDatagram::pair().unwrap();
        let timeout = Duration::from_millis(50);
        let start = Instant::now();
        let ready = interrupted(|| {
            let mut fds = [PollFd::new(near.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, Some(timeout))
        });
        assert_eq!(ready, Ok(0));
        assert!(start.elapsed() >= timeout);
        assert!(start.elapsed() < 100 * timeout);
    }
}
