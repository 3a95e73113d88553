//! How often typing on another computer stalls.

/// A response that takes longer, in ms, is no longer crisp but noticed, and annoys by and by
/// (N. Tolia, D. Andersen, M. Satyanarayanan: Quantifying Interactive User Experience on Thin
/// Clients, IEEE Computer 39(3), 2006, table 1).
pub const CRISP_MS: f64 = 150.0;

/// How late a keystroke may come to the other computer, in ms, if its echo takes this long back.
#[must_use]
pub fn bound_ms(way_back_ms: f64) -> f64 {
    CRISP_MS - way_back_ms
}

/// Of 1,000 keystrokes, how many stall, if this share of them comes later than [`bound_ms`].
#[must_use]
pub fn stalls_per_1000(late_share: f64) -> f64 {
    1000.0 * late_share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_way_back_takes_is_lost_to_the_way_there() {
        assert_eq!(bound_ms(65.0), 85.0);
        assert_eq!(stalls_per_1000(0.012), 12.0);
    }
}
