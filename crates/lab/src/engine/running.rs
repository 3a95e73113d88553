use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::job::Report;
use super::stall::Stall;
use super::{Ending, EngineError, Machine};

/// A kernel at work; dropped, it ends.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reports: Receiver<Report>,
    copies: Vec<JoinHandle<()>>,
    messages: Option<JoinHandle<String>>,
    stall: Stall,
    limit: Option<Duration>,
    control: Option<TempDir>,
}

/// How often the flag to stop is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// Bytes of the kernel's last messages among which its end is explained.
const LAST_MESSAGES: usize = 1 << 16;

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
        let messages = child.stderr.take();
        let messages = messages.map(|messages| thread::spawn(move || last_of(messages)));
        let (sender, reports) = channel();
        let mut read = read.into_iter();
        let mut copies = Vec::new();
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
            messages,
            stall: Stall::new(machine.patience),
            limit: machine.limit,
            control: Some(control),
        }
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
        let messages = self.finish();
        end.unwrap_or(Err(EngineError::Died(messages)))
    }

    /// Waits until the kernel is gone and all that was written is passed on. Returns
    /// why, by its own messages.
    fn finish(&mut self) -> String {
        let _ = self.child.wait();
        for copy in self.copies.drain(..) {
            let _ = copy.join();
        }
        let messages = self.messages.take().map(JoinHandle::join);
        messages.and_then(Result::ok).unwrap_or_default()
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
    while let Ok(read) = line.read(&mut buffer) {
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

/// Reads to the end. Returns the line that says best why it ended. `PILLION_LOG=kernel` in the
/// environment shows all of them.
fn last_of(mut messages: impl Read) -> String {
    let mut last = VecDeque::new();
    let mut buffer = [0; 4096];
    let shown = std::env::var_os("PILLION_LOG").is_some_and(|wanted| wanted == "kernel");
    while let Ok(read @ 1..) = messages.read(&mut buffer) {
        if shown {
            let _ = io::stderr().write_all(&buffer[..read]);
        }
        last.extend(&buffer[..read]);
        let excess = last.len().saturating_sub(LAST_MESSAGES);
        last.drain(..excess);
    }
    let last = Vec::from(last);
    let text = String::from_utf8_lossy(&last);
    let lines = text.lines().map(without_time);
    let mut lines = lines.filter(|line| !line.is_empty());
    let telling = lines.clone().find_map(|line| {
        let marks = ["pillion: ", "Kernel panic - not syncing: "];
        marks.iter().find_map(|mark| line.strip_prefix(mark))
    });
    telling
        .or_else(|| lines.next_back())
        .unwrap_or("it said nothing")
        .to_owned()
}

/// `[    0.123456] text` is `text`.
fn without_time(line: &str) -> &str {
    let rest = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("] "));
    rest.map_or(line, |(_, text)| text).trim()
}
