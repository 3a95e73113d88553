use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const ALARM: u64 = u64::MAX;
const EVENTS: usize = 256;

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

/// Waits for sockets until a moment. The deadline is a timerfd because epoll's own time-out counts
/// in milliseconds and is stretched by the thread's timer slack.
pub(crate) struct Poller {
    epoll: Epoll,
    alarm: TimerFd,
    /// When the alarm will go off, until it has.
    set_to_ns: Option<u64>,
    events: Vec<EpollEvent>,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let alarm =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(system("timerfd_create"))?;
        epoll
            .add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
            .map_err(system("epoll_ctl"))?;
        Ok(Self {
            epoll,
            alarm,
            set_to_ns: None,
            events: vec![EpollEvent::empty(); EVENTS],
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
        if self
            .set_to_ns
            .is_none_or(|set_to_ns| set_to_ns > deadline_ns)
        {
            self.set(deadline_ns)?;
        }
        let ready = match self.epoll.wait(&mut self.events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            result => result.map_err(system("epoll_wait"))?,
        };
        let events = &self.events[..ready];
        if events.iter().any(|event| event.data() == ALARM) {
            self.set_to_ns = None;
        }
        Ok(events
            .iter()
            .filter(|event| event.data() != ALARM)
            .map(|event| (event.data() as usize, event.events())))
    }

    /// Setting the alarm also clears an expiry left over from before. A time of 0 disarms it.
    fn set(&mut self, deadline_ns: u64) -> Result<(), SystemError> {
        self.set_to_ns = Some(deadline_ns);
        let deadline_ns = deadline_ns.max(1);
        let at = TimeSpec::new(
            (deadline_ns / 1_000_000_000) as i64,
            (deadline_ns % 1_000_000_000) as i64,
        );
        self.alarm
            .set(
                Expiration::OneShot(at),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )
            .map_err(system("timerfd_settime"))
    }
}
