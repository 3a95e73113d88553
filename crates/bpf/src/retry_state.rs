//! Steps that fail are reported once and retried, ever less often, until they succeed or their object
//! (a device, a network namespace and its name) is gone.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Error;

/// A change at run time to report to the operator.
#[derive(Debug)]
pub enum Change {
    /// The programs are now attached to this device or namespace.
    Attached(String),
    /// This device or namespace was removed or renamed.
    Detached(String),
    /// Something could not be done; it is tried again.
    Failed(Error),
    /// The programs are at the cgroup again.
    Reattached,
    /// There are as many connections as [`Policy::max_connections`](crate::Policy) allows.
    LimitReached,
    /// All connections have found room again.
    BelowLimit,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Attached(name) => write!(f, "attached to {name}"),
            Self::Detached(name) => write!(f, "detached from {name}"),
            Self::Reattached => f.write_str("attached to the cgroup again"),
            Self::LimitReached => write!(
                f,
                "connection limit reached (--max-connections, or half of it for one user): further \
                 connections are not bundled"
            ),
            Self::BelowLimit => write!(f, "connection limit no longer reached"),
            Self::Failed(error) => write!(f, "{error}; retrying"),
        }
    }
}

/// Wait after a step's first failure; twice as long after each further one.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// How long a step has to succeed to count as mended, should it fail again.
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
    /// When the step is to be tried again, or, of a failure that is over, when it ended.
    time: Instant,
    is_resolved: bool,
}

impl<S: PartialEq> RetryState<S> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// False while a failure of this step is too young.
    pub(crate) fn is_due(&self, step: &S) -> bool {
        let mut retries = self
            .all
            .iter()
            .filter(|it| it.step == *step && !it.is_resolved);
        retries.all(|failure| failure.time <= Instant::now())
    }

    /// True if this step has failed, and not succeeded since.
    pub(crate) fn has(&self, step: &S) -> bool {
        self.all
            .iter()
            .any(|it| it.step == *step && !it.is_resolved)
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
                time: now + MIN_DELAY,
                is_resolved: false,
            });
            return Some(error);
        };
        failure.delay = (failure.delay * 2).min(MAX_DELAY);
        failure.time = now + failure.delay;
        failure.is_resolved = false;
        if failure.message == message {
            return None;
        }
        failure.message = message;
        Some(error)
    }

    /// Takes note of success.
    pub(crate) fn succeeded(&mut self, step: &S) {
        let now = Instant::now();
        for failure in self
            .all
            .iter_mut()
            .filter(|it| it.step == *step && !it.is_resolved)
        {
            (failure.is_resolved, failure.time) = (true, now);
        }
        self.all
            .retain(|it| !it.is_resolved || now.duration_since(it.time) < STABLE_AFTER);
    }

    /// Keeps only failures of steps whose object still exists.
    pub(crate) fn retain(&mut self, exists: impl Fn(&S) -> bool) {
        self.all.retain(|failure| exists(&failure.step));
    }

    /// The current failures.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        let present = self.all.iter().filter(|failure| !failure.is_resolved);
        present.map(|failure| failure.message.as_str())
    }

    /// When the next step is to be tried again.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let waiting = self.all.iter().filter(|failure| !failure.is_resolved);
        waiting.map(|failure| failure.time).min()
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
        assert!(retries.is_due(&7) && retries.next_retry().is_none() && !retries.has(&7));
        assert!(retries.failed(7, error("attach")).is_none());
        assert!(retries.has(&7));
        retries.retain(|step| *step != 7);
        assert!(retries.failed(7, error("attach")).is_some());
    }
}
