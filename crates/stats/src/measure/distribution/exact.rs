/// All values, in half of the memory while each is below 2³²: times up to four seconds, and sizes.
#[derive(Debug, Clone)]
pub(super) enum Exact {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Exact {
    #[inline]
    pub(super) fn push(&mut self, value: u64) {
        match (&mut *self, u32::try_from(value)) {
            (Self::Narrow(values), Ok(narrow)) => values.push(narrow),
            (Self::Narrow(_), Err(_)) => self.widen(value),
            (Self::Wide(values), _) => values.push(value),
        }
    }

    #[cold]
    fn widen(&mut self, value: u64) {
        *self = Self::Wide(self.iter().chain([value]).collect());
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }

    pub(super) fn sort(&mut self) {
        match self {
            Self::Narrow(values) => values.sort_unstable(),
            Self::Wide(values) => values.sort_unstable(),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<u64> {
        match self {
            Self::Narrow(values) => values.get(place).copied().map(u64::from),
            Self::Wide(values) => values.get(place).copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map_while(|place| self.get(place))
    }
}

impl Default for Exact {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl FromIterator<u64> for Exact {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|value| all.push(value));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_they_are_whatever_their_size() {
        let largest_narrow = u64::from(u32::MAX);
        let given = [7, largest_narrow, 3, largest_narrow + 1, 5, u64::MAX, 0];
        let mut all: Exact = given[..3].iter().copied().collect();
        assert!(matches!(all, Exact::Narrow(_)));
        given[3..].iter().for_each(|&value| all.push(value));
        assert!(all.iter().eq(given));
        all.sort();
        assert_eq!(
            (all.len(), all.get(6), all.get(7)),
            (7, Some(u64::MAX), None)
        );
        assert!(all.iter().is_sorted());
    }
}
