use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
