
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Linger};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::pattern;
use super::plan::{Plan, Side, stream};

/// A connection without progress for this long counts as lost; TCP's back-off on this path is
/// shorter.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Poll interval of a waiting end.
const LOOK: Duration = Duration::from_millis(50);

/// Sent and received bytes of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    pub sent: u64,
    pub received: u64,
}

struct End<'a> {
    connection: u64,
    side: Side,
    socket: &'a TcpStream,
    plan: Plan,
    /// The whole process is to stop.
    stop: &'a AtomicBool,
    /// The other end has closed, so an unlimited sender has to stop.
    alone: AtomicBool,
    /// This end is about to reset the connection.
    leaves: AtomicBool,
}

/// Sends and receives until both directions have ended. An error describes a violation.
pub fn talk(
    socket: &TcpStream,
    connection: u64,
    side: Side,
    stop: &AtomicBool,
) -> Result<Account, String> {
    let end = End {
        connection,
        side,
        socket,
        plan: Plan::of(connection),
        stop,
        alone: AtomicBool::new(false),
        leaves: AtomicBool::new(false),
    };
    let account = end.talk().map_err(|error| format!("{side:?}: {error}"))?;
    if end.leaves.into_inner() {
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(socket, Linger, &at_once).map_err(|errno| errno.to_string())?;
    }
    Ok(account)
}

impl End<'_> {
    fn talk(&self) -> Result<Account, String> {
        let set = || -> io::Result<()> {
            self.socket.set_nodelay(true)?;
            self.socket.set_read_timeout(Some(LOOK))?;
            self.socket.set_write_timeout(Some(PATIENCE))
        };
        set().map_err(|error| format!("socket options: {error}"))?;
        thread::scope(|scope| {
            let sender = scope.spawn(|| self.send());
            let received = self.receive();
            if received.is_err() {
                self.alone.store(true, Ordering::Relaxed);
                let _ = self.socket.shutdown(Shutdown::Both);
            }
            let sent = sender.join().map_err(|_| "its sender panicked")?;
            Ok(Account {
                received: received?,
                sent: sent?,
            })
        })
    }

    fn send(&self) -> Result<u64, String> {
        let sending = self.plan.of_side(self.side);
        let pattern = stream(self.connection, self.side);
        let random = &mut Pcg64::seed_from_u64(pattern);
        let mut sent = 0;
        let mut message = 0;
        while sending.messages.is_none_or(|messages| message < messages) {
            let (gap, bytes) = sending.next(random);
            if self.is_over_after(gap) {
                break;
            }
            let mut data = vec![0; bytes];
            pattern::fill(pattern, sent, &mut data);
            sent += bytes as u64;
            match (&mut &*self.socket).write_all(&data) {
                Ok(()) => message += 1,
                Err(error) if self.is_allowed(&error) => return Ok(sent),
                Err(error) => return Err(format!("after {sent} bytes sent: {error}")),
            }
        }
        if self.plan.resets == Some(self.side) {
            self.leaves.store(true, Ordering::Relaxed);
            return Ok(sent);
        }
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if !self.is_allowed(&error) => Err(format!("shutdown: {error}")),
            _ => Ok(sent),
        }
    }

    fn is_over_after(&self, gap: Duration) -> bool {
        let end = Instant::now() + gap;
        loop {
            if self.stop.load(Ordering::Relaxed) || self.alone.load(Ordering::Relaxed) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(LOOK));
        }
    }

    fn receive(&self) -> Result<u64, String> {
        let pattern = stream(self.connection, self.side.other());
        let mut buffer = vec![0; 65_536];
        let mut received = 0;
        let mut last = Instant::now();
        while !self.leaves.load(Ordering::Relaxed) {
            match (&mut &*self.socket).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    if let Some(mistake) = pattern::mistake(pattern, received, &buffer[..count]) {
                        return Err(mistake);
                    }
                    received += count as u64;
                    last = Instant::now();
                }
                Err(error) if is_nothing_yet(&error) => {
                    if last.elapsed() > PATIENCE {
                        return Err(format!("no data for {PATIENCE:?} after byte {received}"));
                    }
                }
                Err(error) if self.is_allowed(&error) => break,
                Err(error) => return Err(format!("after {received} bytes received: {error}")),
            }
        }
        // A half that was closed as planned is no reason to stop.
        let other = self.plan.of_side(self.side.other());
        let own = self.plan.of_side(self.side);
        if other.messages.is_none() || own.messages.is_none() {
            self.alone.store(true, Ordering::Relaxed);
        }
        Ok(received)
    }

    fn is_allowed(&self, error: &io::Error) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
        let is_reset = matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected);
        self.plan.resets.is_some() && is_reset
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
