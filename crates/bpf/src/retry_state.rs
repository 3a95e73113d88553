//! Steps that fail are reported once and retried, ever less often, until they succeed or their object
//! (a device, a network namespace and its name) is gone.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Error;

/// What has changed while pillion was at work, and an operator may want to know.
#[derive(Debug)]
pub enum Change {
    /// Bundling now takes place at this device or namespace, too.
    Come(String),
    /// This device or namespace is no more, or is called otherwise now.
    Gone(String),
    /// Something could not be done; it is tried again.
    Refused(Error),
    /// The programs are at the cgroup again.
    Back,
    /// There are as many connections as [`Policy::max_connections`](crate::Policy) allows.
    Full,
    /// All connections have found room again.
    Room,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Come(name) => write!(f, "{name} has come: bundling there, too"),
            Self::Gone(name) => write!(f, "{name} has gone"),
            Self::Back => f.write_str("attached to the cgroup again"),
            Self::Full => write!(
                f,
                "as many connections as --max-connections allows, in all or of one user: others \
                 stay plain"
            ),
            Self::Room => write!(f, "there is room for all connections again"),
            Self::Refused(error) => write!(f, "{error}; trying again"),
        }
    }
}

/// Wait after a step's first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long a step has to succeed to count as mended, should it fail again.
const STEADY: Duration = Duration::from_secs(60);

/// What has failed, by the step that did.
#[derive(Debug)]
pub(crate) struct RetryState<S> {
    all: Vec<FailedStep<S>>,
}

#[derive(Debug)]
struct FailedStep<S> {
    step: S,
    said: String,
    wait: Duration,
    /// When the step is to be tried again, or, of a failure that is over, when it ended.
    time: Instant,
    over: bool,
}

impl<S: PartialEq> RetryState<S> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// False while a failure of this step is too young.
    pub(crate) fn may_try(&self, step: &S) -> bool {
        let mut troubles = self.all.iter().filter(|it| it.step == *step && !it.over);
        troubles.all(|trouble| trouble.time <= Instant::now())
    }

    /// True if this step has failed, and not succeeded since.
    pub(crate) fn has(&self, step: &S) -> bool {
        self.all.iter().any(|it| it.step == *step && !it.over)
    }

    /// Takes note of how a step went; tells of a failure that was not told of before.
    pub(crate) fn outcome_of<T>(
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
                changes.extend(self.failed(step, error).map(Change::Refused));
                None
            }
        }
    }

    /// Takes note of a failure; gives the error back if it is to be said.
    pub(crate) fn failed(&mut self, step: S, error: Error) -> Option<Error> {
        let (words, now) = (error.to_string(), Instant::now());
        let Some(trouble) = self.all.iter_mut().find(|trouble| trouble.step == step) else {
            self.all.push(FailedStep {
                step,
                said: words,
                wait: FIRST_WAIT,
                time: now + FIRST_WAIT,
                over: false,
            });
            return Some(error);
        };
        trouble.wait = (trouble.wait * 2).min(LONGEST_WAIT);
        trouble.time = now + trouble.wait;
        trouble.over = false;
        if trouble.said == words {
            return None;
        }
        trouble.said = words;
        Some(error)
    }

    /// Takes note of success.
    pub(crate) fn succeeded(&mut self, step: &S) {
        let now = Instant::now();
        for trouble in self
            .all
            .iter_mut()
            .filter(|it| it.step == *step && !it.over)
        {
            (trouble.over, trouble.time) = (true, now);
        }
        self.all
            .retain(|it| !it.over || now.duration_since(it.time) < STEADY);
    }

    /// Keeps the failures of those steps alone whose object is still there.
    pub(crate) fn retain(&mut self, exists: impl Fn(&S) -> bool) {
        self.all.retain(|trouble| exists(&trouble.step));
    }

    /// What fails at present.
    pub(crate) fn said(&self) -> impl Iterator<Item = &str> {
        let present = self.all.iter().filter(|trouble| !trouble.over);
        present.map(|trouble| trouble.said.as_str())
    }

    /// When the next step is to be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        let waiting = self.all.iter().filter(|trouble| !trouble.over);
        waiting.map(|trouble| trouble.time).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &str) -> Error {
        Error::system(words, std::io::Error::other("no"))
    }

    #[test]
    fn a_failure_is_said_once_and_tried_again_ever_less_often() {
        let mut troubles = RetryState::new();
        assert!(troubles.may_try(&7) && troubles.next().is_none());
        assert!(troubles.failed(7, error("attach")).is_some());
        assert!(!troubles.may_try(&7) && troubles.may_try(&8));
        let first = troubles.next().unwrap();
        assert!(troubles.failed(7, error("attach")).is_none());
        assert!(troubles.next().unwrap() > first + FIRST_WAIT / 2);
        for _ in 0..10 {
            troubles.failed(7, error("attach"));
        }
        assert!(troubles.next().unwrap() <= Instant::now() + LONGEST_WAIT);
        assert!(troubles.failed(7, error("something else")).is_some());
    }

    #[test]
    fn what_succeeds_is_over_but_not_forgotten_at_once() {
        let mut troubles = RetryState::new();
        troubles.failed(7, error("attach"));
        troubles.succeeded(&7);
        assert!(troubles.may_try(&7) && troubles.next().is_none() && !troubles.has(&7));
        assert!(troubles.failed(7, error("attach")).is_none());
        assert!(troubles.has(&7));
        troubles.retain(|step| *step != 7);
        assert!(troubles.failed(7, error("attach")).is_some());
    }
}
