use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often it is looked at most.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What is known by now of things that come and go, by their numbers, where to find that out takes
/// long: it is looked again where some are new, and some seconds after the last time.
#[derive(Debug)]
pub struct Known<T> {
    /// `None` of what was not found.
    all: HashMap<u64, Option<T>>,
    looked: Option<Instant>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            looked: None,
        }
    }
}

impl<T: Clone> Known<T> {
    /// Looks for what is to be known of the things with these numbers, one or more times each, if some
    /// are new and it is time; what was known of others is forgotten then. True if it has looked.
    pub fn look(&mut self, numbers: &[u64], find: impl FnOnce() -> HashMap<u64, T>) -> bool {
        let is_due = self.looked.is_none_or(|it| it.elapsed() >= LOOK_EVERY);
        if !is_due || numbers.iter().all(|it| self.all.contains_key(it)) {
            return false;
        }
        let found = find();
        let numbers = numbers.iter();
        self.all = numbers.map(|it| (*it, found.get(it).cloned())).collect();
        self.looked = Some(Instant::now());
        true
    }

    /// What is known of the thing with this number.
    #[must_use]
    pub fn of(&self, number: u64) -> Option<&T> {
        self.all.get(&number)?.as_ref()
    }

    /// All that is known.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.all.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_where_some_are_new_and_not_at_once_again() {
        let mut known = Known::default();
        let found = || HashMap::from([(1, "one"), (2, "two")]);
        assert!(!known.look(&[], found));
        assert!(known.look(&[1, 3, 3], found));
        assert_eq!(
            (known.of(1), known.of(2), known.of(3)),
            (Some(&"one"), None, None)
        );
        assert!(!known.look(&[1, 2, 3], found));
        known.looked = Instant::now().checked_sub(LOOK_EVERY);
        assert!(!known.look(&[3], || panic!("it is known that there is none")));
        assert!(known.look(&[2], found));
        assert_eq!(known.all().collect::<Vec<_>>(), [&"two"]);
    }
}
