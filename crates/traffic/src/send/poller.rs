use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::SendError;

const ALARM: u64 = u64::MAX;
const EVENTS: usize = 256;

/// Waits for sockets until a moment. The deadline is a timerfd because epoll's own time-out counts
/// in milliseconds and is stretched by the thread's timer slack.
pub(super) struct Poller {
    epoll: Epoll,
    alarm: TimerFd,
    events: Vec<EpollEvent>,
}

impl Poller {
    pub(super) fn new() -> Result<Self, SendError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(SendError::system("epoll_create1"))?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .map_err(SendError::system("timerfd_create"))?;
        epoll
            .add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
            .map_err(SendError::system("epoll_ctl"))?;
        Ok(Self {
            epoll,
            alarm,
            events: vec![EpollEvent::empty(); EVENTS],
        })
    }

    /// Reports changes of a socket (edge-triggered) under `index`.
    pub(super) fn add(&self, socket: impl AsFd, index: usize) -> Result<(), SendError> {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        self.epoll
            .add(socket, EpollEvent::new(flags, index as u64))
            .map_err(SendError::system("epoll_ctl"))
    }

    /// The indices of the sockets that changed; none when `deadline_ns` came first.
    pub(super) fn wait_until(
        &mut self,
        deadline_ns: u64,
    ) -> Result<impl Iterator<Item = usize> + use<'_>, SendError> {
        // Setting the timer also clears an expiry left over from before. A time of 0 disarms it.
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
            .map_err(SendError::system("timerfd_settime"))?;
        let ready = match self.epoll.wait(&mut self.events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            result => result.map_err(SendError::system("epoll_wait"))?,
        };
        Ok(self.events[..ready]
            .iter()
            .map(EpollEvent::data)
            .filter(|&data| data != ALARM)
            .map(|data| data as usize))
    }
}
