const NS_PER_S: u128 = 1_000_000_000;

/// How an interface of a pcapng trace counts time: the options if_tsresol and if_tsoffset.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    tick: Tick,
    offset_s: i64,
}

#[derive(Clone, Copy)]
enum Tick {
    /// A whole number of nanoseconds.
    Ns(u64),
    /// So many to a second.
    PerSecond(u128),
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            tick: Tick::Ns(1000),
            offset_s: 0,
        }
    }
}

impl Clock {
    /// Takes over if_tsresol: ticks of 10^-n seconds, or 2^-n with the highest bit set.
    pub fn set_resolution(&mut self, resolution: u8) {
        let exponent = u32::from(resolution & 0x7f);
        let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
        // Ticks so short that a century of them exceeds 128 bits leave no nanosecond.
        let per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
        self.tick = match (per_second <= NS_PER_S && NS_PER_S.is_multiple_of(per_second))
            .then(|| u64::try_from(NS_PER_S / per_second))
        {
            Some(Ok(ns)) => Tick::Ns(ns),
            _ => Tick::PerSecond(per_second),
        };
    }

    /// Takes over if_tsoffset: seconds to add.
    pub fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// Nanoseconds since 1970; what lies beyond the years that 64 bits can say is the last of them.
    #[inline]
    pub fn ns(&self, ticks: u64) -> i64 {
        let ns = match self.tick {
            Tick::Ns(ns) => i64::try_from(ticks.saturating_mul(ns)).unwrap_or(i64::MAX),
            Tick::PerSecond(n) => {
                i64::try_from(u128::from(ticks) * NS_PER_S / n).unwrap_or(i64::MAX)
            }
        };
        ns.saturating_add(self.offset_s.saturating_mul(NS_PER_S as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(resolution: u8, offset_s: i64, ticks: u64) -> i64 {
        let mut clock = Clock::default();
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock.ns(ticks)
    }

    #[test]
    fn ticks_are_microseconds_unless_said_otherwise() {
        assert_eq!(Clock::default().ns(3), 3000);
    }

    #[test]
    fn every_decimal_and_binary_resolution_is_understood() {
        assert_eq!(ns(0, 0, 5), 5_000_000_000);
        assert_eq!(ns(3, 0, 5), 5_000_000);
        assert_eq!(ns(9, 0, 5), 5);
        assert_eq!(ns(12, 0, 5_999), 5);
        assert_eq!(ns(0x80 | 10, 0, 1536), 1_500_000_000);
        assert_eq!(ns(0x80 | 32, 0, 3 << 31), 1_500_000_000);
    }

    #[test]
    fn an_offset_is_added() {
        assert_eq!(ns(9, 2, 5), 2_000_000_005);
        assert_eq!(ns(9, -2, 5), -1_999_999_995);
    }

    #[test]
    fn no_resolution_offset_or_time_overflows() {
        for resolution in 0..=u8::MAX {
            for offset_s in [i64::MIN, -1, 0, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    ns(resolution, offset_s, ticks);
                }
            }
        }
        assert_eq!(ns(0, 0, u64::MAX), i64::MAX);
        assert_eq!(ns(0x7f, 0, u64::MAX), 0);
    }
}
