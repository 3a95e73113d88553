use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use pillion_cli::print::say_line;
use pillion_lab::campaign::{Progress, RunProgress};
use pillion_lab::settings::experiment::Planned;

/// How often a log is told how far the runs are.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// The progress of runs: on a terminal, a line for each run at work, and one for all of them; and
/// elsewhere a line now and then.
pub struct Board {
    lines: MultiProgress,
    all: ProgressBar,
    runs: usize,
    over: AtomicUsize,
    pace: Pace,
}

/// The line of one run on the board; it goes when it is dropped.
struct Line<'a> {
    board: &'a Board,
    bar: ProgressBar,
}

impl Board {
    pub fn new(runs: &[Planned]) -> Self {
        let lines = MultiProgress::new();
        let total = runs.iter().map(|planned| millis(planned.plan.duration));
        let bar = ProgressBar::new(total.sum());
        let all = lines.add(bar.with_style(style("{msg} {wide_bar} {eta} left")));
        let board = Self {
            lines,
            all,
            runs: runs.len(),
            over: AtomicUsize::new(0),
            pace: Pace::from(Instant::now(), BETWEEN_LINES),
        };
        board.count(0);
        board
    }

    /// Takes all lines away.
    pub fn finish(&self) {
        let _ = self.lines.clear();
    }

    fn advance(&self, millis: u64) {
        self.all.inc(millis);
        if self.lines.is_hidden() && self.pace.is_due(Instant::now()) {
            let (over, runs) = (self.over.load(Ordering::Relaxed), self.runs);
            let share = self.all.position() * 100 / self.all.length().unwrap_or(0).max(1);
            say_line!(
                "pillion-lab: {over} of {runs} runs are over, {share} % of the time to be sent"
            );
        }
    }

    fn count(&self, over: usize) {
        self.all
            .set_message(format!("{over} of {} runs", self.runs));
    }
}

impl Progress for Board {
    fn begin<'a>(&'a self, planned: &Planned) -> Box<dyn RunProgress + 'a> {
        let bar = ProgressBar::new(millis(planned.plan.duration));
        let bar = bar.with_style(style("  {wide_bar} {percent} %  {msg}"));
        let bar = self.lines.insert_before(&self.all, bar);
        bar.set_message(planned.name.to_string());
        Box::new(Line { board: self, bar })
    }
}

impl RunProgress for Line<'_> {
    fn reached(&self, time: Duration) {
        let length = self.bar.length().unwrap_or(0);
        let before = self.bar.position();
        let now = millis(time).clamp(before, length.max(before));
        self.bar.set_position(now);
        self.board.advance(now - before);
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.reached(Duration::MAX);
        self.bar.finish_and_clear();
        self.board.lines.remove(&self.bar);
        let over = self.board.over.fetch_add(1, Ordering::Relaxed) + 1;
        self.board.count(over);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Lets something happen once in an interval at the most, and not in the first one.
pub struct Pace {
    every: Duration,
    last: Mutex<Instant>,
}

impl Pace {
    pub fn from(begun: Instant, every: Duration) -> Self {
        let last = Mutex::new(begun);
        Self { every, last }
    }

    /// Whether it is time; who is told so, of several threads, is one.
    pub fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now.saturating_duration_since(*last) >= self.every;
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
    fn it_is_time_once_in_an_interval_however_often_one_asks() {
        let begun = Instant::now();
        let pace = Pace::from(begun, Duration::from_secs(60));
        let due = |seconds: &u64| pace.is_due(begun + Duration::from_secs(*seconds));
        let asked = [0, 59, 60, 61, 119, 121, 500, 501, 560];
        let times: Vec<u64> = asked.into_iter().filter(due).collect();
        assert_eq!(times, [60, 121, 500, 560]);
    }
}
