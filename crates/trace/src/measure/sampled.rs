/// What is known of each of many things, of all of them while they are few; then of every second
/// one, of every fourth and so on.
#[derive(Debug, Clone)]
pub(super) struct Sampled<T> {
    kept: Vec<T>,
    seen: u64,
    every: u64,
}

/// So many are few.
const MOST: usize = 16_384;

impl<T> Default for Sampled<T> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            seen: 0,
            every: 1,
        }
    }
}

impl<T> Sampled<T> {
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        // `every` is a power of two.
        if self.seen & (self.every - 1) == 0 {
            if self.kept.len() == MOST {
                let mut place = 0_usize;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.every *= 2;
            }
            self.kept.push(value);
        }
        self.seen += 1;
    }

    /// Those that were kept, each with how many it stands for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u64)> {
        self.kept.iter().map(|value| (value, self.every))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_all_kept_and_many_evenly() {
        let mut sampled = Sampled::default();
        for value in 0..MOST as u64 {
            sampled.push(value);
        }
        assert!(sampled.iter().map(|(value, _)| *value).eq(0..MOST as u64));
        for value in MOST as u64..8 * MOST as u64 {
            sampled.push(value);
        }
        let every = 8;
        let evenly = (0..8 * MOST as u64).step_by(every);
        assert!(sampled.iter().map(|(value, _)| *value).eq(evenly));
        assert!(sampled.iter().all(|(_, times)| times == every as u64));
    }
}
