//! A line on the terminal that says how far long work has come; nothing elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Follows a counter until [`Progress::finish`].
pub struct Progress {
    ended: Arc<AtomicBool>,
    follower: JoinHandle<()>,
}

impl Progress {
    /// Follows a counter of messages; `total` is the number expected, if that is known.
    pub fn watch(what: &'static str, total: Option<u64>, counter: Arc<AtomicU64>) -> Self {
        let template = match total {
            Some(_) => "{prefix} {wide_bar} {pos}/{len} messages, {eta} left",
            None => "{prefix} {pos} messages, {per_sec}",
        };
        Self::follow(what, template, total, move || {
            counter.load(Ordering::Relaxed)
        })
    }

    /// Follows bytes read, of a file's size if that is known.
    pub fn read(total: Option<u64>, read: impl Fn() -> u64 + Send + 'static) -> Self {
        let template = match total {
            Some(_) => "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes}, {eta} left",
            None => "{prefix} {decimal_bytes}, {decimal_bytes_per_sec}",
        };
        Self::follow("read", template, total, read)
    }

    fn follow(
        what: &'static str,
        template: &'static str,
        total: Option<u64>,
        counter: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let follower = thread::spawn(move || {
            thread::park_timeout(Duration::from_millis(200));
            let bar = bar(what, template, total);
            while !flag.load(Ordering::Relaxed) {
                bar.set_position(counter());
                thread::park_timeout(Duration::from_millis(200));
            }
            bar.finish_and_clear();
        });
        Self { ended, follower }
    }

    /// Takes the line away again.
    pub fn finish(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.follower.thread().unpark();
        let _ = self.follower.join();
    }
}

fn bar(what: &'static str, template: &str, total: Option<u64>) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    total
        .map_or_else(ProgressBar::no_length, ProgressBar::new)
        .with_style(style)
        .with_prefix(what)
}
