//! Failed steps are reported once and retried with increasing delays, until they succeed or their
//! object (a device, a network namespace or its name) no longer exists.

use std::time::{Duration, Instant};

use crate::{Change, Error};

/// Delay after a step's first failure; doubles with each further one, up to [`MAX_DELAY`].
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Time after which a resolved failure is forgotten. If the step fails again earlier, its delay
/// continues to increase, and only another message is reported.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Failures by step.
#[derive(Debug)]
pub(crate) struct RetryState<S> {
    all: Vec<FailedStep<S>>,
}

#[derive(Debug)]
struct FailedStep<S> {
    step: S,
    message: String,
    delay: Duration,
    state: StepState,
}

#[derive(Debug, Clone, Copy)]
enum StepState {
    RetryAt(Instant),
    /// The step succeeded at this time.
    ResolvedAt(Instant),
}

impl<S> FailedStep<S> {
    /// Time of the next try; `None` if the failure is resolved.
    fn retry_at(&self) -> Option<Instant> {
        match self.state {
            StepState::RetryAt(time) => Some(time),
            StepState::ResolvedAt(_) => None,
        }
    }

    fn is_resolved(&self) -> bool {
        matches!(self.state, StepState::ResolvedAt(_))
    }
}

impl<S: PartialEq> RetryState<S> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// True if the step may be tried now: it has no failure, or the delay after it has passed.
    pub(crate) fn is_due(&self, step: &S) -> bool {
        let failures = self.all.iter().filter(|it| it.step == *step);
        let mut retries = failures.filter_map(FailedStep::retry_at);
        retries.all(|retry_at| retry_at <= Instant::now())
    }

    /// True if this step has failed, and not succeeded since.
    pub(crate) fn has_failed(&self, step: &S) -> bool {
        self.has_failed_step(|it| it == step)
    }

    /// True if a step for which `is_it` is true has failed, and not succeeded since.
    pub(crate) fn has_failed_step(&self, is_it: impl Fn(&S) -> bool) -> bool {
        let mut all = self.all.iter();
        all.any(|it| is_it(&it.step) && !it.is_resolved())
    }

    /// Records the result of a step; appends a new failure to `changes`.
    pub(crate) fn record<T>(
        &mut self,
        step: S,
        outcome: Result<T, Error>,
        changes: &mut Vec<Change>,
    ) -> Option<T> {
        match outcome {
            Ok(result) => {
                self.succeeded(&step);
                Some(result)
            }
            Err(error) => {
                changes.extend(self.failed(step, error).map(Change::Failed));
                None
            }
        }
    }

    /// Records a failure; returns the error if it is to be reported.
    pub(crate) fn failed(&mut self, step: S, error: Error) -> Option<Error> {
        let (message, now) = (error.to_string(), Instant::now());
        let Some(failure) = self.all.iter_mut().find(|failure| failure.step == step) else {
            self.all.push(FailedStep {
                step,
                message,
                delay: MIN_DELAY,
                state: StepState::RetryAt(now + MIN_DELAY),
            });
            return Some(error);
        };
        failure.delay = (failure.delay * 2).min(MAX_DELAY);
        failure.state = StepState::RetryAt(now + failure.delay);
        if failure.message == message {
            return None;
        }
        failure.message = message;
        Some(error)
    }

    /// Records a success, and forgets failures of any step that were resolved long ago.
    pub(crate) fn succeeded(&mut self, step: &S) {
        let now = Instant::now();
        for failure in self
            .all
            .iter_mut()
            .filter(|it| it.step == *step && !it.is_resolved())
        {
            failure.state = StepState::ResolvedAt(now);
        }
        self.all.retain(|it| match it.state {
            StepState::RetryAt(_) => true,
            StepState::ResolvedAt(time) => now.duration_since(time) < STABLE_AFTER,
        });
    }

    /// Drops failures of steps whose object no longer exists.
    pub(crate) fn retain(&mut self, exists: impl Fn(&S) -> bool) {
        self.all.retain(|failure| exists(&failure.step));
    }

    /// The current failures.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        let current = self.all.iter().filter(|failure| !failure.is_resolved());
        current.map(|failure| failure.message.as_str())
    }

    /// Time of the earliest retry.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.all.iter().filter_map(FailedStep::retry_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str) -> Error {
        Error::system(message, std::io::Error::other("no"))
    }

    #[test]
    fn failure_is_reported_once_and_retried_with_backoff() {
        let mut retries = RetryState::new();
        assert!(retries.is_due(&7) && retries.next_retry().is_none());
        assert!(retries.failed(7, error("attach")).is_some());
        assert!(!retries.is_due(&7) && retries.is_due(&8));
        let first = retries.next_retry().unwrap();
        assert!(retries.failed(7, error("attach")).is_none());
        assert!(retries.next_retry().unwrap() > first + MIN_DELAY / 2);
        for _ in 0..10 {
            retries.failed(7, error("attach"));
        }
        assert!(retries.next_retry().unwrap() <= Instant::now() + MAX_DELAY);
        assert!(retries.failed(7, error("something else")).is_some());
    }

    #[test]
    fn resolved_failure_is_remembered_for_stable_period() {
        let mut retries = RetryState::new();
        retries.failed(7, error("attach"));
        retries.succeeded(&7);
        assert!(retries.is_due(&7) && retries.next_retry().is_none() && !retries.has_failed(&7));
        assert!(retries.failed(7, error("attach")).is_none());
        assert!(retries.has_failed(&7));
        retries.retain(|step| *step != 7);
        assert!(retries.failed(7, error("attach")).is_some());
    }
}
