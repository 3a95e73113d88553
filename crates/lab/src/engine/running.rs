use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pillion_bpf::host::interruption::retry;
use tempfile::TempDir;

use super::job::Report;
use super::stall::Stall;
use super::{Breakdown, Console, Ending, EngineError, Machine};

/// A kernel at work; dropped, it ends.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reports: Receiver<Report>,
    copies: Vec<JoinHandle<()>>,
    console: Console,
    stall: Stall,
    limit: Option<Duration>,
    control: Option<TempDir>,
}

/// Real time between two looks at the flag to stop.
const GLANCE: Duration = Duration::from_millis(100);

impl Running {
    /// Takes charge of a kernel just started; `read` are the host's ends of the lines, `control`
    /// the folder that it wants for itself.
    pub(super) fn follow(
        machine: &Machine,
        mut child: Child,
        read: Vec<File>,
        sinks: [Box<dyn Write + Send>; 2],
        control: TempDir,
    ) -> Self {
        let (sender, reports) = channel();
        let mut read = read.into_iter();
        let mut copies = Vec::new();
        let console = Console::default();
        if let Some(messages) = child.stderr.take() {
            let console = console.clone();
            copies.push(thread::spawn(move || console.take_in(messages)));
        }
        if let Some(line) = read.next() {
            copies.push(thread::spawn(move || tell(line, &sender)));
        }
        for (line, sink) in read.zip(sinks) {
            copies.push(thread::spawn(move || pass_on(line, sink)));
        }
        Self {
            child,
            reports,
            copies,
            console,
            stall: Stall::new(machine.patience),
            limit: machine.limit,
            control: Some(control),
        }
    }

    /// What the kernel says; all of it once the program's end was waited for.
    #[must_use]
    pub fn console(&self) -> Console {
        self.console.clone()
    }

    /// Waits for the program's end. `reached` is told how far virtual time has come; the kernel
    /// is stopped when `stop` is set.
    ///
    /// # Errors
    /// [`EngineError::Stalled`], [`EngineError::Late`], [`EngineError::Stopped`],
    /// [`EngineError::Died`] and [`EngineError::Inside`]; nothing runs any more then.
    pub fn wait(
        mut self,
        stop: &AtomicBool,
        mut reached: impl FnMut(Duration),
    ) -> Result<Ending, EngineError> {
        let begun = Instant::now();
        let mut at = Duration::ZERO;
        let mut end = None;
        loop {
            match self.reports.recv_timeout(GLANCE) {
                Ok(Report::Reached(time)) => {
                    // What it made there is of no use: nothing is to be left, however this ends.
                    self.control = None;
                    at = time;
                    self.stall.moved();
                    reached(at);
                }
                Ok(Report::Ended(ending)) => end = Some(Ok(ending)),
                Ok(Report::Failed(reason)) => end = Some(Err(EngineError::Inside(reason))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                return Err(EngineError::Stopped);
            }
            if let Some(waited) = self.stall.found(self.child.id()) {
                return Err(EngineError::Stalled { at, waited });
            }
            if let Some(limit) = self.limit.filter(|limit| begun.elapsed() > *limit) {
                return Err(EngineError::Late { at, limit });
            }
        }
        let signal = self.finish();
        end.unwrap_or_else(|| {
            let breakdown = Breakdown::find(&self.console.text(), signal);
            Err(EngineError::Died(breakdown))
        })
    }

    /// Waits until the kernel is gone and all that was written is passed on. Returns the signal
    /// that ended it, if one did.
    fn finish(&mut self) -> Option<i32> {
        let status = self.child.wait();
        for copy in self.copies.drain(..) {
            let _ = copy.join();
        }
        status.ok().and_then(|status| status.signal())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The processes inside are the kernel's children on the host, and end with it.
        let _ = self.child.kill();
        self.finish();
    }
}

fn tell(line: File, sender: &Sender<Report>) {
    for text in BufReader::new(line).lines().map_while(Result::ok) {
        // A line cut short by the kernel's end is none.
        if let Ok(report) = serde_json::from_str(&text)
            && sender.send(report).is_err()
        {
            return;
        }
    }
}

fn pass_on(mut line: File, mut sink: Box<dyn Write + Send>) {
    let mut buffer = [0; 1 << 16];
    while let Ok(read) = retry(|| line.read(&mut buffer)) {
        // Where nobody listens any more, the program inside need not know.
        if read == 0
            || sink
                .write_all(&buffer[..read])
                .and_then(|()| sink.flush())
                .is_err()
        {
            break;
        }
    }
    let _ = io::copy(&mut line, &mut io::sink());
}
