use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Fingerprints of what was sent and has no fate yet, in that order, apart from all else, to be
/// searched fast.
#[derive(Debug, Default)]
pub(crate) struct Prints {
    /// 0 where the packet has arrived.
    prints: VecDeque<u64>,
    /// So many have been taken out in front of them.
    gone: u64,
    /// The one after that which matched last: packets mostly keep their order.
    expected: usize,
    /// So many of the last have not been compared with what is looked for; `None` of all.
    unsearched: Option<usize>,
    /// Of those before `indexed`, counted from the first that ever was, fingerprint and number.
    index: BTreeSet<(u64, u64)>,
    indexed: u64,
}

/// So many are compared one by one: what is found is mostly close, and an index takes longer to
/// keep. Of what is changed on the way nothing is found, and each look through all that was sent in
/// the last seconds would take time that grows with the square of the rate.
const CLOSE: usize = 256;

impl Prints {
    #[inline]
    pub(crate) fn push(&mut self, print: u64) {
        self.prints.push_back(print);
        if let Some(unsearched) = &mut self.unsearched {
            *unsearched += 1;
        }
    }

    /// The place of the one expected next.
    #[inline]
    pub(crate) fn expected(&self) -> usize {
        self.expected
    }

    /// What is at a place.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&u64> {
        self.prints.get(place)
    }

    fn first_unsearched(&self) -> usize {
        (self.unsearched).map_or(0, |unsearched| self.prints.len().saturating_sub(unsearched))
    }

    /// The place of a fingerprint among those that have not been searched: of equal ones the first
    /// from the expected one on, else the first.
    pub(crate) fn find(&mut self, print: u64) -> Option<usize> {
        let end = self.prints.len();
        let begin = self.first_unsearched();
        let expected = self.expected.clamp(begin, end);
        if self.prints.get(expected) == Some(&print) {
            return Some(expected);
        }
        if end - begin <= CLOSE {
            return find(&self.prints, expected..end, print)
                .or_else(|| find(&self.prints, begin..expected, print));
        }
        let close = expected..end.min(expected + CLOSE);
        find(&self.prints, close, print).or_else(|| self.look_up(print, begin, expected))
    }

    /// Has what is looked for next be compared only with what is sent from now on: with all else it
    /// has been.
    pub(crate) fn searched(&mut self) {
        self.unsearched = Some(0);
    }

    /// Has what is looked for next be compared with all.
    pub(crate) fn begin_anew(&mut self) {
        self.unsearched = None;
    }

    #[cold]
    fn look_up(&mut self, print: u64, begin: usize, expected: usize) -> Option<usize> {
        let from = self.indexed.max(self.gone);
        let new = self.prints.range((from - self.gone) as usize..);
        let new = (from..).zip(new).filter(|(_, print)| **print != 0);
        self.index
            .extend(new.map(|(number, print)| (*print, number)));
        self.indexed = self.gone + self.prints.len() as u64;
        let number = |place: usize| (print, self.gone + place as u64);
        let first = |numbers: Range<(u64, u64)>| self.index.range(numbers).next();
        let found = first(number(expected)..(print, u64::MAX))
            .or_else(|| first(number(begin)..number(expected)))?;
        Some((found.1 - self.gone) as usize)
    }

    /// Says that the one at a place has arrived, and gives its fingerprint.
    #[inline]
    pub(crate) fn arrived(&mut self, place: usize) -> Option<u64> {
        let print = std::mem::take(self.prints.get_mut(place)?);
        self.expected = self.expected.max(place + 1);
        self.forget(print, place);
        Some(print)
    }

    /// Takes out the first.
    #[inline]
    pub(crate) fn pop(&mut self) {
        if let Some(print) = self.prints.pop_front() {
            self.forget(print, 0);
            self.gone += 1;
            self.expected = self.expected.saturating_sub(1);
        }
    }

    #[inline]
    fn forget(&mut self, print: u64, place: usize) {
        let number = self.gone + place as u64;
        if number < self.indexed && print != 0 {
            self.index.remove(&(print, number));
        }
    }
}

/// The first place in a range that has a fingerprint.
fn find(prints: &VecDeque<u64>, range: Range<usize>, print: u64) -> Option<usize> {
    let (front, back) = prints.as_slices();
    let split = front.len();
    let in_front = front.get(range.start.min(split)..range.end.min(split))?;
    let in_back = back.get(range.start.saturating_sub(split)..range.end.saturating_sub(split))?;
    let place =
        position(in_front, print).or_else(|| Some(in_front.len() + position(in_back, print)?))?;
    Some(range.start + place)
}

/// Where a number stands, looking at many at a time: few are found.
fn position(numbers: &[u64], wanted: u64) -> Option<usize> {
    const AT_A_TIME: usize = 64;
    let is_in = |some: &[u64]| some.iter().fold(false, |found, &it| found | (it == wanted));
    let chunk = numbers.chunks(AT_A_TIME).position(is_in)?;
    let mut rest = numbers.iter().skip(chunk * AT_A_TIME);
    Some(chunk * AT_A_TIME + rest.position(|&it| it == wanted)?)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// The place by comparing all.
    fn place_of(prints: &Prints, print: u64) -> Option<usize> {
        let is_it = |place: &usize| prints.prints[*place] == print;
        let end = prints.prints.len();
        let begin = prints.first_unsearched();
        let expected = prints.expected.clamp(begin, end);
        let on = (expected..end).find(is_it);
        on.or_else(|| (begin..expected).find(is_it))
    }

    #[test]
    fn what_is_found_is_the_same_however_it_is_looked_for() {
        for seed in 0..20 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut prints = Prints::default();
            let kinds = [50, 1000, u64::MAX / 4][seed as usize % 3];
            for _ in 0..20_000 {
                // Odd, as fingerprints are.
                let mut any = || random.random_range(0..kinds) * 2 + 1;
                let (print, other) = (any(), any());
                match random.random_range(0..10) {
                    0..5 => prints.push(print),
                    5..8 => {
                        let place = random.random_range(0..prints.prints.len().max(1));
                        let sent = prints.get(place).copied().filter(|it| *it != 0);
                        let print = sent.unwrap_or(other);
                        let expected = place_of(&prints, print);
                        assert_eq!(prints.find(print), expected, "seed {seed}");
                        match expected {
                            Some(place) if random.random() => {
                                assert_eq!(prints.arrived(place), Some(print));
                                prints.begin_anew();
                            }
                            Some(_) => {}
                            None if random.random() => prints.searched(),
                            None => prints.begin_anew(),
                        }
                    }
                    _ if prints.prints.len() > 2000 => (0..20).for_each(|_| prints.pop()),
                    _ => prints.pop(),
                }
            }
            assert!(prints.index.len() <= prints.prints.len());
        }
    }

    /// One by one these would be ten thousand million comparisons, which take minutes.
    #[test]
    fn much_that_was_sent_is_not_searched_for_each_that_is_changed() {
        const PACKETS: u64 = 100_000;
        let mut prints = Prints::default();
        for packet in 0..PACKETS {
            prints.push(2 * packet + 1);
        }
        for packet in PACKETS..2 * PACKETS {
            assert_eq!(prints.find(2 * packet + 1), None);
        }
        for packet in 0..PACKETS {
            assert_eq!(prints.find(2 * packet + 1), Some(packet as usize));
        }
    }
}
