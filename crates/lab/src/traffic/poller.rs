use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::get_timerslack;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::traffic::latency::now_ns;

const TIMER: u64 = u64::MAX;
const EVENTS: usize = 256;

/// Nanoseconds between two checks of the stop flag in a waiting sender or receiver.
pub(crate) const STOP_CHECK_NS: u64 = 100_000_000;

/// A failed system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemError {
    pub(crate) call: &'static str,
    pub(crate) source: Errno,
}

/// Returns a converter of errors for `map_err`, with the name of the system call.
pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> SystemError {
    move |source| SystemError { call, source }
}

/// Waits for events of sockets until a deadline.
pub(crate) struct Poller {
    epoll: Epoll,
    deadline: Deadline,
    events: Vec<EpollEvent>,
}

/// How a wait ends.
enum Deadline {
    /// A timer, and its expiry if it is armed. The thread's timer slack would delay epoll's own
    /// timeout.
    Timer(TimerFd, Option<u64>),
    /// Epoll's own timeout, for a thread without slack: a real-time thread, or one in a lab kernel.
    /// It saves a system call per wait.
    Timeout,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let deadline = match get_timerslack() {
            Ok(0) if wait(&epoll, &mut events, 0).is_ok() => Deadline::Timeout,
            _ => Deadline::Timer(timer(&epoll)?, None),
        };
        Ok(Self {
            epoll,
            deadline,
            events,
        })
    }

    /// Reports these events of a socket under `index`.
    pub(crate) fn add(
        &self,
        socket: impl AsFd,
        index: usize,
        flags: EpollFlags,
    ) -> Result<(), SystemError> {
        self.epoll
            .add(socket, EpollEvent::new(flags, index as u64))
            .map_err(system("epoll_ctl"))
    }

    /// Replaces the events to report.
    pub(crate) fn change(
        &self,
        socket: impl AsFd,
        index: usize,
        flags: EpollFlags,
    ) -> Result<(), SystemError> {
        self.epoll
            .modify(socket, &mut EpollEvent::new(flags, index as u64))
            .map_err(system("epoll_ctl"))
    }

    /// Returns the indices of the sockets with events, and the events. Returns none when
    /// `deadline_ns` has passed, or an earlier deadline of an earlier call: setting the timer again
    /// each time would cost a system call.
    pub(crate) fn wait_until(
        &mut self,
        deadline_ns: u64,
    ) -> Result<impl Iterator<Item = (usize, EpollFlags)> + use<'_>, SystemError> {
        let ready = match &mut self.deadline {
            Deadline::Timeout => {
                let left_ns = deadline_ns.saturating_sub(now_ns());
                wait(&self.epoll, &mut self.events, left_ns)
            }
            Deadline::Timer(timer, set_to_ns) => {
                if set_to_ns.is_none_or(|set_to_ns| set_to_ns > deadline_ns) {
                    set(timer, deadline_ns)?;
                    *set_to_ns = Some(deadline_ns);
                }
                self.epoll.wait(&mut self.events, EpollTimeout::NONE)
            }
        };
        let ready = match ready {
            Err(Errno::EINTR) => 0,
            result => result.map_err(system("epoll_wait"))?,
        };
        let events = &self.events[..ready];
        if let Deadline::Timer(_, set_to_ns) = &mut self.deadline
            && events.iter().any(|event| event.data() == TIMER)
        {
            *set_to_ns = None;
        }
        Ok(events
            .iter()
            .filter(|event| event.data() != TIMER)
            .map(|event| (event.data() as usize, event.events())))
    }
}

/// Creates a timer, and registers it with the epoll instance.
fn timer(epoll: &Epoll) -> Result<TimerFd, SystemError> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(system("timerfd_create"))?;
    epoll
        .add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))
        .map_err(system("epoll_ctl"))?;
    Ok(timer)
}

/// Arms the timer, and clears an earlier expiry. A time of 0 would disarm it.
fn set(timer: &TimerFd, deadline_ns: u64) -> Result<(), SystemError> {
    let at = time_spec(deadline_ns.max(1));
    timer
        .set(
            Expiration::OneShot(at),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        )
        .map_err(system("timerfd_settime"))
}

fn time_spec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
}

/// Like `epoll_wait()`, with a timeout in nanoseconds (Linux 5.11).
fn wait(epoll: &Epoll, events: &mut [EpollEvent], timeout_ns: u64) -> Result<usize, Errno> {
    let timeout = time_spec(timeout_ns);
    // SAFETY: `EpollEvent` has the layout of `epoll_event`, the buffer has the stated length, and
    // no signal set is passed.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            events.len(),
            std::ptr::from_ref(timeout.as_ref()),
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    Errno::result(ready).map(|ready| ready as usize)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns a poller of either kind. Both guarantee the same, whatever the thread's slack.
    fn pollers() -> [Poller; 2] {
        let poller = |use_epoll_timeout| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            let deadline = if use_epoll_timeout {
                Deadline::Timeout
            } else {
                Deadline::Timer(timer(&epoll).unwrap(), None)
            };
            Poller {
                epoll,
                deadline,
                events: vec![EpollEvent::empty(); EVENTS],
            }
        };
        [poller(false), poller(true)]
    }

    #[test]
    fn wait_ends_at_deadline_not_earlier() {
        for mut poller in pollers() {
            for ahead_ns in [0, 3_000_000] {
                let deadline_ns = now_ns() + ahead_ns;
                assert_eq!(poller.wait_until(deadline_ns).unwrap().count(), 0);
                assert!(now_ns() >= deadline_ns);
            }
        }
    }

    #[test]
    fn wait_ends_when_socket_is_readable() {
        for mut poller in pollers() {
            let (mut one, other) = UnixStream::pair().unwrap();
            poller.add(&other, 7, EpollFlags::EPOLLIN).unwrap();
            one.write_all(b"x").unwrap();
            let ready: Vec<_> = poller.wait_until(u64::MAX / 4).unwrap().collect();
            assert_eq!(ready, [(7, EpollFlags::EPOLLIN)]);
        }
    }
}
