use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};

use crate::engine::job::Report;
use crate::engine::lines::Line;
use pillion_bpf::host::clock::monotonic;

/// Tells the host how far the work is.
#[derive(Clone)]
pub struct Teller(Arc<Mutex<File>>);

/// Virtual time between two reports of it: cheap, and the same in every run.
const BEAT: Duration = Duration::from_secs(1);

impl Teller {
    /// Starts to tell the time.
    pub fn start() -> Result<Self, String> {
        let teller = Self(Arc::new(Mutex::new(open(Line::Reports)?)));
        let beating = teller.clone();
        thread::spawn(move || {
            while beating.tell(&Report::Reached(monotonic())).is_ok() {
                thread::sleep(BEAT);
            }
        });
        Ok(teller)
    }

    /// Sends a report to the host.
    pub fn tell(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).map_err(|error| error.to_string())
    }
}

/// Opens a line to the host, as one that changes nothing of what it carries.
pub fn open(line: Line) -> Result<File, String> {
    let failed = |error: String| format!("{}: {error}", line.device());
    let file = File::options()
        .write(true)
        .open(line.device())
        .map_err(|error| failed(error.to_string()))?;
    let mut manner = tcgetattr(file.as_fd()).map_err(|errno| failed(errno.to_string()))?;
    cfmakeraw(&mut manner);
    tcsetattr(file.as_fd(), SetArg::TCSANOW, &manner).map_err(|errno| failed(errno.to_string()))?;
    Ok(file)
}
