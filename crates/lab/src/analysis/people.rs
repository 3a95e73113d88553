//! The effect of latency on people: quality of calls, and stalls while typing.

/// Stalls while typing on a remote computer.
pub mod typing {
    /// Response time in ms up to which a response feels crisp. Slower ones are noticed, and later
    /// annoying (N. Tolia, D. Andersen, M. Satyanarayanan: Quantifying Interactive User Experience
    /// on Thin Clients, IEEE Computer 39(3), 2006, table 1).
    pub const CRISP_MS: f64 = 150.0;

    /// Returns the maximum delivery latency of a keystroke in ms, if its echo takes `way_back_ms`.
    #[must_use]
    pub fn bound_ms(way_back_ms: f64) -> f64 {
        CRISP_MS - way_back_ms
    }

    /// Returns the number of stalls per 1,000 keystrokes, if `late_share` of them take longer than
    /// [`bound_ms`].
    #[must_use]
    pub fn stalls_per_1000(late_share: f64) -> f64 {
        1000.0 * late_share
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn return_path_delay_reduces_typing_bound() {
            assert_eq!(bound_ms(65.0), 85.0);
            assert_eq!(stalls_per_1000(0.012), 12.0);
        }
    }
}

/// The quality of a call by the E-model (ITU-T G.107, 2015).
///
/// All parameters except delay and loss have their default values (table 3), and echo is cancelled.
/// The rating is therefore 93.2 minus the impairments by delay and loss. A frame that is too late to
/// be played counts as lost, and losses count as independent.
pub mod voice {
    /// The rating without delay and loss, with all default values (section 7.7).
    pub const BEST: f64 = 93.2;

    /// The smallest delay that is noticed, in ms (mT of table 3).
    const NOTICED_MS: f64 = 100.0;

    /// The robustness of G.711 with loss concealment against independent losses (Bpl; ITU-T G.113,
    /// appendix I). Its impairment without loss (Ie) is 0.
    const ROBUSTNESS: f64 = 25.1;

    /// Returns the rating R of a call, at most [`BEST`]. It is negative if speech is
    /// incomprehensible.
    ///
    /// `mouth_to_ear_ms` is the time from speech to sound. `lost_share`, from 0 to 1, includes
    /// frames that are too late.
    #[must_use]
    pub fn rating(mouth_to_ear_ms: f64, lost_share: f64) -> f64 {
        BEST - by_delay(mouth_to_ear_ms) - by_loss(lost_share)
    }

    /// Converts a rating to the mean opinion score (MOS-CQE), from 1 (bad) to 4.5 (annex B).
    #[must_use]
    pub fn opinion(rating: f64) -> f64 {
        let r = rating.clamp(0.0, 100.0);
        let opinion = 1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6;
        opinion.max(1.0)
    }

    /// Returns the impairment by delay, Idd (equations 7-27 and 7-28).
    fn by_delay(mouth_to_ear_ms: f64) -> f64 {
        if mouth_to_ear_ms <= NOTICED_MS {
            return 0.0;
        }
        let doublings = (mouth_to_ear_ms / NOTICED_MS).log2();
        let root = |x: f64| (1.0 + x.powi(6)).powf(1.0 / 6.0);
        25.0 * (root(doublings) - 3.0 * root(doublings / 3.0) + 2.0)
    }

    /// Returns the impairment by losses, Ie-eff (equation 7-29) with Ie 0 and BurstR 1.
    fn by_loss(lost_share: f64) -> f64 {
        let percent = lost_share * 100.0;
        95.0 * percent / (percent + ROBUSTNESS)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn is_near(value: f64, expected: f64, within: f64) {
            assert!((value - expected).abs() <= within, "{value}, {expected}");
        }

        #[test]
        fn opinion_scores_match_table_b_1() {
            for (rating, expected) in [
                (90.0, 4.34),
                (80.0, 4.03),
                (70.0, 3.60),
                (60.0, 3.10),
                (50.0, 2.58),
            ] {
                is_near(opinion(rating), expected, 0.01);
            }
            is_near(opinion(BEST), 4.41, 0.005);
            assert_eq!([opinion(-20.0), opinion(3.0)], [1.0; 2]);
            assert_eq!(opinion(120.0), 4.5);
        }

        /// The expected values come from an implementation with all parameters
        /// (github.com/manucorporat/e-model), with Ta, Ppl, Bpl 25.1 and otherwise default values.
        #[test]
        fn ratings_match_full_e_model() {
            for (delay_ms, lost_percent, expected) in [
                (0.0, 0.0, 93.206),
                (100.0, 0.0, 93.206),
                (150.0, 0.0, 93.043),
                (200.0, 0.0, 90.162),
                (300.0, 0.0, 78.446),
                (400.0, 0.0, 69.136),
                (0.0, 1.0, 89.566),
                (0.0, 5.0, 77.425),
                (200.0, 2.0, 83.151),
                (400.0, 20.0, 27.008),
            ] {
                is_near(rating(delay_ms, lost_percent / 100.0), expected, 0.01);
            }
        }
    }
}
