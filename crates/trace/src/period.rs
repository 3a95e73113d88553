/// A part of a trace, by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// What was captured before is left out.
    pub from: Option<When>,
    /// What was captured then or later is left out.
    pub until: Option<When>,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In nanoseconds since 1970.
    At(i64),
    /// In nanoseconds since the first TCP packet of the trace, of two that of the sender's.
    After(i64),
}

impl When {
    fn ns(self, begin_ns: i64) -> i64 {
        match self {
            Self::At(ns) => ns,
            Self::After(ns) => begin_ns.saturating_add(ns),
        }
    }
}

impl Period {
    /// Whether a time lies in it, by the clock of the trace that began at `begin_ns`.
    #[inline]
    #[must_use]
    pub fn takes(&self, begin_ns: i64, at_ns: i64) -> bool {
        self.from.is_none_or(|from| at_ns >= from.ns(begin_ns))
            && self.until.is_none_or(|until| at_ns < until.ns(begin_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_its_beginning_and_not_its_end() {
        let period = Period {
            from: Some(When::After(10)),
            until: Some(When::At(120)),
        };
        let taken = [109, 110, 119, 120].map(|at_ns| period.takes(100, at_ns));
        assert_eq!(taken, [false, true, true, false]);
        assert!(Period::default().takes(0, i64::MIN));
    }
}
