//! Has a signal reached the command without pillion? One that was sent to the whole process group
//! or cgroup has, one to pillion alone has not, and nothing in the signal tells which it was. So a
//! second process is in the same group and cgroup, and hears what is sent to all.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::beside;

/// How long after pillion the others may hear of it: service managers signal the processes of a
/// cgroup one by one, the main one first.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long an answer may take on a busy host; one that was stopped never gives it.
const ANSWER: Duration = Duration::from_secs(1);

/// The witness, from this process's side; dropping it ends it.
pub struct Witness {
    line: Option<UnixStream>,
    process: Pid,
    /// Signals heard and not asked after yet, a bit for each.
    heard: u64,
}

impl Witness {
    /// Calls one for these signals, which are blocked.
    pub fn call(signals: &SigSet) -> io::Result<Self> {
        let (line, its_end) = UnixStream::pair()?;
        line.set_read_timeout(Some(ANSWER))?;
        line.set_write_timeout(Some(ANSWER))?;
        let process = beside::start(c"pillion-witness", its_end, |line| {
            let _ = testify(&line, signals);
        })?;
        Ok(Self {
            line: Some(line),
            process,
            heard: 0,
        })
    }

    /// Has it heard the signal that this process has just read?
    pub fn heard(&mut self, signal: u32) -> bool {
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= PATIENCE;
            self.ask();
            if self.heard & bit(signal) != 0 {
                self.heard &= !bit(signal);
                return true;
            }
            if is_last {
                return false;
            }
            thread::sleep(PATIENCE / 10);
        }
    }

    /// Without an answer it has heard nothing: the command rather gets a signal twice than never.
    fn ask(&mut self) {
        let mut answer = [0; size_of::<u64>()];
        if let Some(line) = &mut self.line
            && line.write_all(b"?").is_ok()
            && line.read_exact(&mut answer).is_ok()
        {
            self.heard |= u64::from_ne_bytes(answer);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = waitpid(self.process, None);
    }
}

/// Answers each question with what has been heard since the last one, until nobody is left to
/// ask.
fn testify(mut line: &UnixStream, signals: &SigSet) -> io::Result<()> {
    let source = SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK)?;
    let mut question = [0];
    loop {
        line.read_exact(&mut question)?;
        let mut heard = 0;
        while let Some(info) = source.read_signal()? {
            heard |= bit(info.ssi_signo);
        }
        line.write_all(&u64::to_ne_bytes(heard))?;
    }
}

/// Signals have numbers from 1 to 64.
fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}
