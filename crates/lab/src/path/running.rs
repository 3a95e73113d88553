//! A running path: its thread, which moves frames between the devices when they are due, and its
//! statistics.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use crate::path::direction::DirectionState;
use crate::path::queue_log::QueueLog;
use crate::path::{PathConfig, PathError, PathStats};
use crate::queue::Packet;

/// Maximum frames moved in one direction before the other's turn. Neither a flood nor a burst of
/// departures then blocks the rest for much longer than 0.1 ms.
const BATCH: usize = 32;

/// Two TAP devices, and a thread that carries frames in both directions until this value is stopped
/// or dropped.
#[derive(Debug)]
pub struct Path {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the path's thread and its owner.
struct Shared {
    state: Mutex<PathState>,
    /// Readable when the path has to stop.
    stop: EventFd,
}

impl Path {
    /// Connects two devices; forward is from `a` to `b`. The devices may be moved and configured
    /// before or after.
    ///
    /// Fails if a field of the configuration is out of range, or if the system has no thread or
    /// file descriptor left.
    pub fn start(a: Tap, b: Tap, config: &PathConfig) -> Result<Self, PathError> {
        config.validate()?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let shared = Arc::new(Shared {
            state: Mutex::new(PathState::new(config)),
            stop: stop.map_err(|errno| PathError::Thread(errno.into()))?,
        });
        let thread = thread::Builder::new()
            .name("pillion-path".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || forward_frames(&[a, b], &shared)
            })
            .map_err(PathError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the path's statistics so far.
    pub fn stats(&self) -> PathStats {
        self.shared.state().stats()
    }

    /// Returns whether no packet is inside, in either direction.
    pub fn is_idle(&self) -> bool {
        let now = Instant::now();
        let state = self.shared.state();
        state.directions.iter().all(|it| it.is_idle(now))
    }

    /// Logs every packet of the queue before a link, until [`Path::stop_queue_logs`]; number n is
    /// the direction from device n.
    pub fn log_queue(&self, number: usize) -> Receiver<Packet> {
        let (to, from) = channel();
        let direction = &mut self.shared.state().directions[number];
        direction.set_queue_log(Instant::now(), Some(QueueLog::new(to)));
        from
    }

    /// Ends the logs of both queues.
    pub fn stop_queue_logs(&self) {
        for direction in &mut self.shared.state().directions {
            direction.set_queue_log(Instant::now(), None);
        }
    }

    /// Stops the path and removes both devices. Frames inside are discarded and counted as inside.
    /// A device may remain for a moment if this process is just starting a child, which holds its
    /// descriptor until exec.
    pub fn stop(mut self) -> PathStats {
        self.end();
        self.stats()
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Both errors are harmless: a counter of one does not overflow, and a panicked thread
            // has exited.
            let _ = self.shared.stop.write(1);
            let _ = thread.join();
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, PathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared")
            .field(&self.state().stats())
            .finish()
    }
}

/// The state of a path: both directions, and the vanished device that stopped it, if any.
struct PathState {
    /// Both directions: number n carries frames from device n.
    directions: [DirectionState; 2],
    device_gone: Option<String>,
}

impl PathState {
    fn new(config: &PathConfig) -> Self {
        Self {
            directions: DirectionState::pair(config),
            device_gone: None,
        }
    }

    fn stats(&self) -> PathStats {
        let [forward, backward] = &self.directions;
        PathStats {
            forward: forward.counts(),
            backward: backward.counts(),
            device_gone: self.device_gone.clone(),
        }
    }

    fn due(&self) -> Option<Instant> {
        self.directions.iter().filter_map(DirectionState::due).min()
    }
}

/// Why the thread wakes up.
enum Wake {
    /// Whether each device may have frames to read; frames may be due in any case.
    Work([bool; 2]),
    Stop,
}

/// Carries frames until the path is stopped or a device vanishes.
fn forward_frames(taps: &[Tap; 2], shared: &Shared) {
    raise_priority();
    let mut frame = [0; MAX_FRAME];
    let mut readable = [true; 2];
    loop {
        let mut state = shared.state();
        write_due(taps, &mut state.directions);
        if let Err(vanished) = read_waiting(taps, &mut state.directions, readable, &mut frame) {
            state.device_gone = Some(vanished.name().to_owned());
            return;
        }
        let due = state.due();
        drop(state);
        match wait(taps, &shared.stop, due) {
            Wake::Work(devices) => readable = devices,
            Wake::Stop => return,
        }
    }
}

fn write_due(taps: &[Tap; 2], directions: &mut [DirectionState; 2]) {
    for (direction, to) in directions.iter_mut().zip(taps.iter().rev()) {
        for _ in 0..BATCH {
            if !direction.depart(Instant::now(), |frame| to.write(frame).is_ok()) {
                break;
            }
        }
    }
}

/// Reads waiting frames from the readable devices. The error is the vanished device.
fn read_waiting<'a>(
    taps: &'a [Tap; 2],
    directions: &mut [DirectionState; 2],
    readable: [bool; 2],
    frame: &mut [u8; MAX_FRAME],
) -> Result<(), &'a Tap> {
    for (number, (from, readable)) in taps.iter().zip(readable).enumerate() {
        for _ in 0..if readable { BATCH } else { 0 } {
            match from.read(frame) {
                Ok(Some(bytes)) => {
                    let now = Instant::now();
                    // The traces of both directions start together.
                    directions.iter_mut().for_each(|it| it.start_link(now));
                    directions[number].arrive(now, &frame[..bytes]);
                }
                Ok(None) => break,
                Err(_) => return Err(from),
            }
        }
    }
    Ok(())
}

/// Sleeps until a frame is due or waiting, or the path has to stop.
fn wait([a, b]: &[Tap; 2], stop: &EventFd, due: Option<Instant>) -> Wake {
    let mut fds = [a.as_fd(), b.as_fd(), stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
    match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
        // A vanished device also reports an error here; the read detects it.
        Ok(_) => match fds.map(|fd| fd.any().unwrap_or(true)) {
            [_, _, true] => Wake::Stop,
            [a, b, false] => Wake::Work([a, b]),
        },
        Err(Errno::EINTR) => Wake::Work([false; 2]),
        // The only other error of a valid call, lack of memory, is temporary.
        Err(_) => {
            thread::sleep(Duration::from_millis(1));
            Wake::Work([true; 2])
        }
    }
}

// Priority of the calling thread.

/// Makes the calling thread's sleeps exact, and gives it priority over ordinary threads, like the
/// kernel's own emulator, which runs in softirqs. Otherwise a busy neighbour delays frames by
/// milliseconds. Both may be denied (a container without `CAP_SYS_NICE`). The path then depends on
/// its neighbours, and the delay errors show the effect.
fn raise_priority() {
    // By default, a sleep may end 50 µs late.
    let _ = prctl::set_timerslack(1);
    let _ = set_realtime_priority();
}

/// Gives the calling thread a real-time priority. The kernel reserves 5 % of the time for ordinary
/// threads even if it never sleeps.
fn set_realtime_priority() -> nix::Result<()> {
    // The kernel's sched_param is this number; the function of musl always fails.
    let lowest: libc::c_int = 1;
    let policy = libc::SCHED_FIFO;
    // SAFETY: reads the number, which outlives the call; 0 is the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) };
    nix::errno::Errno::result(result).map(drop)
}

// A TAP device: a network device whose other end is this process.

/// Maximum bytes of a frame: the largest MTU, the Ethernet header and a VLAN tag.
const MAX_FRAME: usize = 65_521 + 14 + 4;

const MODE: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;

/// A TAP device that exists as long as this value.
///
/// The kernel segments and checksums its frames before, so every frame is one packet on the wire.
#[derive(Debug)]
pub struct Tap {
    name: String,
    file: File,
}

impl Tap {
    /// Creates a device in the network namespace of the calling thread. The caller moves it to
    /// another namespace and sets its address, MTU and state with `ip`.
    ///
    /// Fails if the name is invalid or in use, if `/dev/net/tun` is missing, or without the right
    /// to create devices (`CAP_NET_ADMIN`).
    pub fn open(name: &str) -> Result<Self, PathError> {
        let request = request(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(PathError::Tun)?;
        create(&file, &request).map_err(|cause| PathError::Create {
            name: name.to_owned(),
            cause,
        })?;
        Ok(Self {
            name: name.to_owned(),
            file,
        })
    }

    /// Returns the name the device was created with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame from the kernel; `None` if none is waiting.
    pub(crate) fn read(&self, frame: &mut [u8; MAX_FRAME]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(frame) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Passes one frame to the kernel as received.
    pub(crate) fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn request(name: &str) -> Result<libc::ifreq, PathError> {
    let allowed = |byte: u8| byte > b' ' && byte != 0x7f && !b"/:%".contains(&byte);
    if !(1..libc::IFNAMSIZ).contains(&name.len()) || !name.bytes().all(allowed) {
        return Err(PathError::Name(name.to_owned()));
    }
    // SAFETY: ifreq consists of plain integers and unions of them, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // The flags have 16 bits; IFF_TUN_EXCL is the highest of them, the sign of a short.
    request.ifr_ifru.ifru_flags = MODE as libc::c_short;
    Ok(request)
}

fn create(tun: &File, request: &libc::ifreq) -> io::Result<()> {
    let mut request = *request;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_device_names_are_rejected() {
        for name in ["", "tap%d", "a/b", "a b", "a:b", "a\0b", "sixteen-bytes-ab"] {
            assert!(matches!(Tap::open(name), Err(PathError::Name(_))), "{name}");
        }
    }
}
