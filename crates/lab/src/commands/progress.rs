//! Progress bar on a terminal; elsewhere nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress bar that follows a counter until [`Progress::finish`].
pub struct Progress {
    stop_flag: Arc<AtomicBool>,
    updater: JoinHandle<()>,
}

impl Progress {
    /// Follows a counter of messages; `total` is the expected number, if known.
    pub fn watch(label: &'static str, total: Option<u64>, counter: Arc<AtomicU64>) -> Self {
        let template = match total {
            Some(_) => "{prefix} {wide_bar} {pos}/{len} messages, {eta} left",
            None => "{prefix} {pos} messages, {per_sec}",
        };
        Self::follow(label, template, total, move || {
            counter.load(Ordering::Relaxed)
        })
    }

    /// Follows the bytes read; `total` is the size of the files, if known.
    pub fn read(total: Option<u64>, read: impl Fn() -> u64 + Send + 'static) -> Self {
        let template = match total {
            Some(_) => "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes}, {eta} left",
            None => "{prefix} {decimal_bytes}, {decimal_bytes_per_sec}",
        };
        Self::follow("read", template, total, read)
    }

    fn follow(
        label: &'static str,
        template: &'static str,
        total: Option<u64>,
        counter: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let stop_flag = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop_flag);
        let updater = thread::spawn(move || {
            thread::park_timeout(Duration::from_millis(200));
            let bar = bar(label, template, total);
            while !flag.load(Ordering::Relaxed) {
                bar.set_position(counter());
                thread::park_timeout(Duration::from_millis(200));
            }
            bar.finish_and_clear();
        });
        Self { stop_flag, updater }
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.stop_flag.store(true, Ordering::Relaxed);
        self.updater.thread().unpark();
        let _ = self.updater.join();
    }
}

fn bar(label: &'static str, template: &str, total: Option<u64>) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    total
        .map_or_else(ProgressBar::no_length, ProgressBar::new)
        .with_style(style)
        .with_prefix(label)
}
