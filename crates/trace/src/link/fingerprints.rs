use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Fingerprints of sent packets without a disposition, in order, stored separately for fast search.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints {
    /// 0 if the packet has arrived.
    fingerprints: VecDeque<u64>,
    /// Number of entries removed from the front.
    removed: u64,
    /// The entry after the last match: packets usually stay in order.
    expected: usize,
    /// Number of last entries not yet compared with the current search; `None` means all.
    unsearched: Option<usize>,
    /// Fingerprint and number of entries before `indexed`; numbers count from the first entry ever.
    index: BTreeSet<(u64, u64)>,
    indexed: u64,
}

/// Entries searched linearly, because matches are usually close and an index costs more. Packets
/// changed on the path never match. A linear search of the last seconds for each of them would take
/// time quadratic in the rate.
const LINEAR_SEARCH_LEN: usize = 256;

impl Fingerprints {
    #[inline]
    pub(crate) fn push(&mut self, fingerprint: u64) {
        self.fingerprints.push_back(fingerprint);
        if let Some(unsearched) = &mut self.unsearched {
            *unsearched += 1;
        }
    }

    /// Index of the entry expected next.
    #[inline]
    pub(crate) fn expected(&self) -> usize {
        self.expected
    }

    /// The entry at an index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&u64> {
        self.fingerprints.get(index)
    }

    /// The indices from `from` on with a fingerprint.
    pub(crate) fn all(&self, from: usize, fingerprint: u64) -> Vec<usize> {
        let mut all = Vec::new();
        let (mut from, end) = (from, self.fingerprints.len());
        while let Some(index) = find(&self.fingerprints, from..end, fingerprint) {
            all.push(index);
            from = index + 1;
        }
        all
    }

    fn first_unsearched(&self) -> usize {
        (self.unsearched).map_or(0, |unsearched| {
            self.fingerprints.len().saturating_sub(unsearched)
        })
    }

    /// The index of a fingerprint among unsearched entries. Among equal ones, the first from the
    /// expected entry on, otherwise the first.
    pub(crate) fn find(&mut self, fingerprint: u64) -> Option<usize> {
        let end = self.fingerprints.len();
        let start = self.first_unsearched();
        let expected = self.expected.clamp(start, end);
        if self.fingerprints.get(expected) == Some(&fingerprint) {
            return Some(expected);
        }
        if end - start <= LINEAR_SEARCH_LEN {
            return find(&self.fingerprints, expected..end, fingerprint)
                .or_else(|| find(&self.fingerprints, start..expected, fingerprint));
        }
        let close = expected..end.min(expected + LINEAR_SEARCH_LEN);
        find(&self.fingerprints, close, fingerprint)
            .or_else(|| self.look_up(fingerprint, start, expected))
    }

    /// Limits the next search to entries added later, because the others did not match.
    pub(crate) fn searched(&mut self) {
        self.unsearched = Some(0);
    }

    /// Makes the next search compare all entries.
    pub(crate) fn restart_search(&mut self) {
        self.unsearched = None;
    }

    #[cold]
    fn look_up(&mut self, fingerprint: u64, start: usize, expected: usize) -> Option<usize> {
        let from = self.indexed.max(self.removed);
        let new = self.fingerprints.range((from - self.removed) as usize..);
        let new = (from..)
            .zip(new)
            .filter(|(_, fingerprint)| **fingerprint != 0);
        self.index
            .extend(new.map(|(number, fingerprint)| (*fingerprint, number)));
        self.indexed = self.removed + self.fingerprints.len() as u64;
        let number = |index: usize| (fingerprint, self.removed + index as u64);
        let first = |numbers: Range<(u64, u64)>| self.index.range(numbers).next();
        let found = first(number(expected)..(fingerprint, u64::MAX))
            .or_else(|| first(number(start)..number(expected)))?;
        Some((found.1 - self.removed) as usize)
    }

    /// Marks an entry as arrived and returns its fingerprint.
    #[inline]
    pub(crate) fn arrived(&mut self, index: usize) -> Option<u64> {
        let fingerprint = std::mem::take(self.fingerprints.get_mut(index)?);
        self.expected = self.expected.max(index + 1);
        self.forget(fingerprint, index);
        Some(fingerprint)
    }

    /// Removes the first entry.
    #[inline]
    pub(crate) fn pop(&mut self) {
        if let Some(fingerprint) = self.fingerprints.pop_front() {
            self.forget(fingerprint, 0);
            self.removed += 1;
            self.expected = self.expected.saturating_sub(1);
        }
    }

    #[inline]
    fn forget(&mut self, fingerprint: u64, index: usize) {
        let number = self.removed + index as u64;
        if number < self.indexed && fingerprint != 0 {
            self.index.remove(&(fingerprint, number));
        }
    }
}

/// The first index of a fingerprint in a range.
fn find(fingerprints: &VecDeque<u64>, range: Range<usize>, fingerprint: u64) -> Option<usize> {
    let (front, back) = fingerprints.as_slices();
    let split = front.len();
    let in_front = front.get(range.start.min(split)..range.end.min(split))?;
    let in_back = back.get(range.start.saturating_sub(split)..range.end.saturating_sub(split))?;
    let index = position(in_front, fingerprint)
        .or_else(|| Some(in_front.len() + position(in_back, fingerprint)?))?;
    Some(range.start + index)
}

/// The index of a number, comparing many at a time because matches are rare.
fn position(numbers: &[u64], target: u64) -> Option<usize> {
    const AT_A_TIME: usize = 64;
    let is_in = |some: &[u64]| some.iter().fold(false, |found, &it| found | (it == target));
    let chunk = numbers.chunks(AT_A_TIME).position(is_in)?;
    let mut rest = numbers.iter().skip(chunk * AT_A_TIME);
    Some(chunk * AT_A_TIME + rest.position(|&it| it == target)?)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// The index by linear search.
    fn index_of(fingerprints: &Fingerprints, fingerprint: u64) -> Option<usize> {
        let is_it = |index: &usize| fingerprints.fingerprints[*index] == fingerprint;
        let end = fingerprints.fingerprints.len();
        let start = fingerprints.first_unsearched();
        let expected = fingerprints.expected.clamp(start, end);
        let on = (expected..end).find(is_it);
        on.or_else(|| (start..expected).find(is_it))
    }

    #[test]
    fn indexed_search_equals_linear_search() {
        for seed in 0..20 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut fingerprints = Fingerprints::default();
            let kinds = [50, 1000, u64::MAX / 4][seed as usize % 3];
            for _ in 0..20_000 {
                // Odd, as fingerprints are.
                let mut any = || random.random_range(0..kinds) * 2 + 1;
                let (fingerprint, other) = (any(), any());
                match random.random_range(0..10) {
                    0..5 => fingerprints.push(fingerprint),
                    5..8 => {
                        let index = random.random_range(0..fingerprints.fingerprints.len().max(1));
                        let sent = fingerprints.get(index).copied().filter(|it| *it != 0);
                        let fingerprint = sent.unwrap_or(other);
                        let expected = index_of(&fingerprints, fingerprint);
                        assert_eq!(fingerprints.find(fingerprint), expected, "seed {seed}");
                        match expected {
                            Some(index) if random.random() => {
                                assert_eq!(fingerprints.arrived(index), Some(fingerprint));
                                fingerprints.restart_search();
                            }
                            Some(_) => {}
                            None if random.random() => fingerprints.searched(),
                            None => fingerprints.restart_search(),
                        }
                    }
                    _ if fingerprints.fingerprints.len() > 2000 => {
                        (0..20).for_each(|_| fingerprints.pop());
                    }
                    _ => fingerprints.pop(),
                }
            }
            assert!(fingerprints.index.len() <= fingerprints.fingerprints.len());
        }
    }

    /// A linear search would need ten thousand million comparisons, which take minutes.
    #[test]
    fn search_for_absent_fingerprints_is_fast() {
        const PACKETS: u64 = 100_000;
        let mut fingerprints = Fingerprints::default();
        for packet in 0..PACKETS {
            fingerprints.push(2 * packet + 1);
        }
        for packet in PACKETS..2 * PACKETS {
            assert_eq!(fingerprints.find(2 * packet + 1), None);
        }
        for packet in 0..PACKETS {
            assert_eq!(fingerprints.find(2 * packet + 1), Some(packet as usize));
        }
    }
}
