use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::get_timerslack;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::traffic::latency::now_ns;

const ALARM: u64 = u64::MAX;
const EVENTS: usize = 256;

/// Nanoseconds after which a waiting sender or receiver looks at its stop flag again.
pub(crate) const STOP_CHECK_NS: u64 = 100_000_000;

/// A system call that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemError {
    pub(crate) call: &'static str,
    pub(crate) source: Errno,
}

/// For `map_err` on a system call of this name.
pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> SystemError {
    move |source| SystemError { call, source }
}

/// Waits for sockets until a moment.
pub(crate) struct Poller {
    epoll: Epoll,
    deadline: Deadline,
    events: Vec<EpollEvent>,
}

/// What ends a wait.
enum Deadline {
    /// An alarm, and when it will go off, until it has: epoll's own time-out is stretched by the
    /// thread's timer slack.
    Alarm(TimerFd, Option<u64>),
    /// Epoll's own time-out, of a thread without slack: a real-time one, or one in a lab kernel. It
    /// spares a system call for each wait.
    TimeOut,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let deadline = match get_timerslack() {
            Ok(0) if wait(&epoll, &mut events, 0).is_ok() => Deadline::TimeOut,
            _ => Deadline::Alarm(alarm(&epoll)?, None),
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

    /// Reports these events from now on instead.
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

    /// The indices of the sockets with events, and these; none when `deadline_ns` came first, or
    /// an earlier one of an earlier call: setting the alarm anew each time costs a system call.
    pub(crate) fn wait_until(
        &mut self,
        deadline_ns: u64,
    ) -> Result<impl Iterator<Item = (usize, EpollFlags)> + use<'_>, SystemError> {
        let ready = match &mut self.deadline {
            Deadline::TimeOut => {
                let left_ns = deadline_ns.saturating_sub(now_ns());
                wait(&self.epoll, &mut self.events, left_ns)
            }
            Deadline::Alarm(alarm, set_to_ns) => {
                if set_to_ns.is_none_or(|set_to_ns| set_to_ns > deadline_ns) {
                    set(alarm, deadline_ns)?;
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
        if let Deadline::Alarm(_, set_to_ns) = &mut self.deadline
            && events.iter().any(|event| event.data() == ALARM)
        {
            *set_to_ns = None;
        }
        Ok(events
            .iter()
            .filter(|event| event.data() != ALARM)
            .map(|event| (event.data() as usize, event.events())))
    }
}

/// A timer that the epoll tells of.
fn alarm(epoll: &Epoll) -> Result<TimerFd, SystemError> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(system("timerfd_create"))?;
    epoll
        .add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
        .map_err(system("epoll_ctl"))?;
    Ok(alarm)
}

/// Setting the alarm also clears an expiry left over from before. A time of 0 disarms it.
fn set(alarm: &TimerFd, deadline_ns: u64) -> Result<(), SystemError> {
    let at = time_spec(deadline_ns.max(1));
    alarm
        .set(
            Expiration::OneShot(at),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        )
        .map_err(system("timerfd_settime"))
}

fn time_spec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
}

/// As `epoll_wait()`, with a time-out in nanoseconds (Linux 5.11).
fn wait(epoll: &Epoll, events: &mut [EpollEvent], time_out_ns: u64) -> Result<usize, Errno> {
    let time_out = time_spec(time_out_ns);
    // SAFETY: `EpollEvent` has the layout of `epoll_event`, and there is room for as many as said;
    // no set of signals is given.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            events.len(),
            std::ptr::from_ref(time_out.as_ref()),
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

    /// A poller of either kind; what the thread's slack is does not matter to what they promise.
    fn pollers() -> [Poller; 2] {
        let poller = |own_time_out| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            let deadline = if own_time_out {
                Deadline::TimeOut
            } else {
                Deadline::Alarm(alarm(&epoll).unwrap(), None)
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
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for mut poller in pollers() {
            for ahead_ns in [0, 3_000_000] {
                let deadline_ns = now_ns() + ahead_ns;
                assert_eq!(poller.wait_until(deadline_ns).unwrap().count(), 0);
                assert!(now_ns() >= deadline_ns);
            }
        }
    }

    #[test]
    fn a_wait_ends_when_a_socket_has_something() {
        for mut poller in pollers() {
            let (mut one, other) = UnixStream::pair().unwrap();
            poller.add(&other, 7, EpollFlags::EPOLLIN).unwrap();
            one.write_all(b"x").unwrap();
            let ready: Vec<_> = poller.wait_until(u64::MAX / 4).unwrap().collect();
            assert_eq!(ready, [(7, EpollFlags::EPOLLIN)]);
        }
    }
}
