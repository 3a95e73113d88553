use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::mirror::Mirror;
use crate::engine::RESULTS;
use crate::engine::lines;

/// Results on their way to the host: copied while they grow, so that they are there should the
/// kernel break down, and as a whole in the end.
pub struct Outflow {
    over: Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

/// Virtual time between two copies of the results.
const BEAT: Duration = Duration::from_millis(500);

/// Where the host's folder is mounted, for the thread that copies alone: any other would see the
/// host's times and inode numbers there.
const OUTSIDE: &str = "/run";

impl Outflow {
    /// Begins to copy results, where the host gave a folder.
    pub fn begin() -> Option<Self> {
        let wanted = fs::read_to_string("/proc/cmdline")
            .is_ok_and(|line| line.split_whitespace().any(|word| word == lines::WANTED));
        wanted.then(|| {
            let (over, ended) = channel();
            let thread = thread::spawn(move || copy_until(&ended));
            Self { over, thread }
        })
    }

    /// Copies all results that there are.
    pub fn finish(self) -> Result<(), String> {
        drop(self.over);
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err("the thread that copies results failed".to_owned()))
    }
}

fn copy_until(over: &Receiver<()>) -> Result<(), String> {
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| format!("leave the namespace of mounts: {errno}"))?;
    let folder = lines::path(lines::RESULTS);
    mount(
        Some("results"),
        OUTSIDE,
        Some("hostfs"),
        MsFlags::empty(),
        Some(folder.as_str()),
    )
    .map_err(|errno| format!("mount the host's folder: {errno}"))?;
    let mut mirror = Mirror::new(Path::new(RESULTS), Path::new(OUTSIDE));
    while over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        // What does not succeed now is told in the end, if it does not then.
        let _ = mirror.grow();
    }
    mirror.finish()
}
