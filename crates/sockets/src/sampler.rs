use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::{CsvFile, Error, Sockets};

/// Fixed times: `CLOCK_MONOTONIC`'s multiples of an interval, so that samples of several hosts,
/// and of two runs in virtual time, are of the same moments. One that was missed is left out.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    interval: Duration,
    last: Duration,
}

impl Ticks {
    /// An interval of 1 ms at least.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(1)),
            last: now(),
        }
    }

    /// Sleeps until the next one, which it returns in ns; a signal's handler may end it early.
    pub fn sleep(&mut self) -> u64 {
        let interval = self.interval.as_nanos();
        let after = self.last.max(now()).as_nanos() / interval + 1;
        let next = u64::try_from(after * interval).unwrap_or(u64::MAX);
        self.last = Duration::from_nanos(next);
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &TimeSpec::from(self.last));
        next
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// Samples all connections of a network namespace into a file, until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, Error>>,
}

impl Sampler {
    /// Begins; `sockets` were opened in the namespace. The file is CSV ([`CSV_HEADING`]),
    /// compressed where its name ends in `.zst`.
    ///
    /// [`CSV_HEADING`]: crate::CSV_HEADING
    ///
    /// # Errors
    /// [`Error::Write`] if the file cannot be made.
    pub fn start(mut sockets: Sockets, interval: Duration, file: &Path) -> Result<Self, Error> {
        let path = file.to_owned();
        let failed = move |source| Error::Write {
            path: path.clone(),
            source,
        };
        let mut csv = CsvFile::create(file).map_err(&failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut ticks = Ticks::every(interval);
            let mut written = 0;
            while !stopped.load(Ordering::Relaxed) {
                let samples = sockets.sample(ticks.sleep())?;
                written += samples.len() as u64;
                csv.write(&samples).map_err(&failed)?;
            }
            csv.finish().map_err(&failed)?;
            Ok(written)
        });
        Ok(Self { stop, thread })
    }

    /// Stops after the next round, and returns how many samples there are.
    ///
    /// # Errors
    /// [`Error::Ask`], [`Error::Write`].
    pub fn stop(self) -> Result<u64, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let failed = |_| Err(Error::Ask(std::io::Error::other("the thread failed")));
        self.thread.join().unwrap_or_else(failed)
    }
}
