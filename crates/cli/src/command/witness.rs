//! Has a signal reached the command without pillion? One that was sent to the whole process group
//! or cgroup has, one to pillion alone has not, and nothing in the signal tells which it was. So a
//! second process is in the same group and cgroup, and hears what is sent to all.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;

use crate::beside;

/// How long after pillion other processes may hear of a signal: service managers signal the
/// processes of a cgroup one by one, the main one first.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long the witness's answer may take on a busy host; one that was stopped never gives it.
const ANSWER: Duration = Duration::from_secs(1);

/// The witness, from this process's side; dropping it ends it.
pub struct Witness {
    line: Option<UnixStream>,
    process: Pid,
    heard: Heard,
}

impl Witness {
    /// Calls a witness for these signals, which are blocked.
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
            heard: Heard::default(),
        })
    }

    /// True if the witness has heard the signal that this process has just read.
    pub fn heard(&mut self, signal: u32) -> bool {
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= PATIENCE;
            self.ask();
            if self.heard.take(signal) {
                return true;
            }
            if is_last {
                return false;
            }
            thread::sleep(PATIENCE / 10);
        }
    }

    /// Asks the witness what it has heard. Without an answer it has heard nothing: the command
    /// rather gets a signal twice than never.
    fn ask(&mut self) {
        let mut answer = [0; SIGNALS];
        if let Some(line) = &mut self.line
            && line.write_all(b"?").is_ok()
            && line.read_exact(&mut answer).is_ok()
        {
            self.heard.add(&answer);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // It may have been stopped, and has nothing to do any more.
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = retry(|| waitpid(self.process, None));
    }
}

/// Answers each question with what has been heard since the last one, until nobody is left to
/// ask.
fn testify(mut line: &UnixStream, signals: &SigSet) -> io::Result<()> {
    let source = SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK)?;
    let mut question = [0];
    loop {
        line.read_exact(&mut question)?;
        let mut heard = [0u8; SIGNALS];
        while let Some(info) = source.read_signal()? {
            let count = &mut heard[place(info.ssi_signo)];
            *count = count.saturating_add(1);
        }
        line.write_all(&heard)?;
    }
}

/// How many signals there are: their numbers are 1 to 64.
const SIGNALS: usize = 64;

/// Number of the first real-time signal: those wait one by one; of the others, one of each.
const FIRST_REAL_TIME: usize = 32;

fn place(signal: u32) -> usize {
    signal as usize - 1
}

/// How often each signal was heard and not asked after yet.
struct Heard(Box<[u8; SIGNALS]>);

impl Default for Heard {
    fn default() -> Self {
        Self(Box::new([0; SIGNALS]))
    }
}

impl Heard {
    fn add(&mut self, more: &[u8; SIGNALS]) {
        for (signal, (count, more)) in (1..).zip(self.0.iter_mut().zip(more)) {
            *count = match signal >= FIRST_REAL_TIME {
                true => count.saturating_add(*more),
                false => (*count).max(*more).min(1),
            };
        }
    }

    /// True if this signal was heard; it counts once less from then on.
    fn take(&mut self, signal: u32) -> bool {
        let count = &mut self.0[place(signal)];
        let was_heard = *count > 0;
        *count = count.saturating_sub(1);
        was_heard
    }
}

#[test]
fn real_time_signals_are_heard_one_by_one_and_others_once() {
    let mut heard = Heard::default();
    let mut answer = [0; SIGNALS];
    (answer[place(10)], answer[place(40)]) = (2, 3);
    heard.add(&answer);
    assert!(heard.take(10) && !heard.take(10));
    assert!(heard.take(40) && heard.take(40) && heard.take(40) && !heard.take(40));
}
