use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use pillion_lab::campaign::{Progress, RunProgress};
use pillion_lab::settings::experiment::PlannedRun;

/// Interval between progress lines in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Progress of runs: on a terminal, a bar for each running run and one for all; elsewhere a line
/// per minute.
pub struct ProgressDisplay {
    lines: MultiProgress,
    all: ProgressBar,
    runs: usize,
    finished: AtomicUsize,
    log_limit: RateLimit,
}

/// Bar of one run, which is removed when this is dropped.
struct RunBar<'a> {
    progress_display: &'a ProgressDisplay,
    bar: ProgressBar,
}

impl ProgressDisplay {
    pub fn new(runs: &[PlannedRun]) -> Self {
        let lines = MultiProgress::new();
        let total = runs.iter().map(|planned| millis(planned.plan.duration));
        let bar = ProgressBar::new(total.sum());
        let all = lines.add(bar.with_style(style("{msg} {wide_bar} {eta} left")));
        let progress_display = Self {
            lines,
            all,
            runs: runs.len(),
            finished: AtomicUsize::new(0),
            log_limit: RateLimit::from(Instant::now(), LOG_INTERVAL),
        };
        progress_display.count(0);
        progress_display
    }

    /// Removes all bars.
    pub fn finish(&self) {
        let _ = self.lines.clear();
    }

    fn advance(&self, millis: u64) {
        self.all.inc(millis);
        if self.lines.is_hidden() && self.log_limit.is_due(Instant::now()) {
            let (finished, runs) = (self.finished.load(Ordering::Relaxed), self.runs);
            let share = self.all.position() * 100 / self.all.length().unwrap_or(0).max(1);
            log::info!("{finished} of {runs} runs finished, {share} % of the time of sending");
        }
    }

    fn count(&self, finished: usize) {
        self.all
            .set_message(format!("{finished} of {} runs", self.runs));
    }
}

impl Progress for ProgressDisplay {
    fn start<'a>(&'a self, planned: &PlannedRun) -> Box<dyn RunProgress + 'a> {
        let bar = ProgressBar::new(millis(planned.plan.duration));
        let bar = bar.with_style(style("  {wide_bar} {percent} %  {msg}"));
        let bar = self.lines.insert_before(&self.all, bar);
        bar.set_message(planned.name.to_string());
        Box::new(RunBar {
            progress_display: self,
            bar,
        })
    }
}

impl RunProgress for RunBar<'_> {
    fn reached(&self, time: Duration) {
        let length = self.bar.length().unwrap_or(0);
        let before = self.bar.position();
        let now = millis(time).clamp(before, length.max(before));
        self.bar.set_position(now);
        self.progress_display.advance(now - before);
    }
}

impl Drop for RunBar<'_> {
    fn drop(&mut self) {
        self.reached(Duration::MAX);
        self.bar.finish_and_clear();
        self.progress_display.lines.remove(&self.bar);
        let finished = self
            .progress_display
            .finished
            .fetch_add(1, Ordering::Relaxed)
            + 1;
        self.progress_display.count(finished);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Rate limit: one event per interval, none in the first one.
pub struct RateLimit {
    interval: Duration,
    last: Mutex<Instant>,
}

impl RateLimit {
    pub fn from(start: Instant, interval: Duration) -> Self {
        let last = Mutex::new(start);
        Self { interval, last }
    }

    /// Returns true at most once per interval, over all threads.
    pub fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now.saturating_duration_since(*last) >= self.interval;
        if due {
            *last = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_allows_one_event_per_interval() {
        let start = Instant::now();
        let log_limit = RateLimit::from(start, Duration::from_secs(60));
        let due = |seconds: &u64| log_limit.is_due(start + Duration::from_secs(*seconds));
        let requests = [0, 59, 60, 61, 119, 121, 500, 501, 560];
        let times: Vec<u64> = requests.into_iter().filter(due).collect();
        assert_eq!(times, [60, 121, 500, 560]);
    }
}
