/// A part of a trace, by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// What was sent before is left out. It is read all the same, so that nothing is lost of what
    /// was in flight then: a latency belongs to the part in which it began.
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
    /// The period's first nanosecond since 1970, by the clock of a trace that began at `begin_ns`;
    /// `i64::MIN` where it begins with the trace.
    #[must_use]
    pub fn from_ns(&self, begin_ns: i64) -> i64 {
        self.from.map_or(i64::MIN, |from| from.ns(begin_ns))
    }

    /// The first nanosecond that it has no more; `i64::MAX` where it ends with the trace.
    #[must_use]
    pub fn until_ns(&self, begin_ns: i64) -> i64 {
        self.until.map_or(i64::MAX, |until| until.ns(begin_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970_or_from_the_first_packet() {
        let period = Period {
            from: Some(When::After(10)),
            until: Some(When::At(120)),
        };
        assert_eq!((period.from_ns(100), period.until_ns(100)), (110, 120));
        let all = Period::default();
        assert_eq!((all.from_ns(100), all.until_ns(100)), (i64::MIN, i64::MAX));
    }
}
