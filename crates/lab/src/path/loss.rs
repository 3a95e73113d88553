use serde::{Deserialize, Serialize};

/// Which packets of one direction are lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Loss {
    /// Packets are lost each with the same probability, 0 to 1, whatever became of the others.
    Uniform(f64),
    /// Packets are lost in runs: a path with a good and a bad state (Gilbert and Elliott). It is
    /// good at first. A packet is lost by the state that it finds, and then the state may change,
    /// as in netem's `gemodel`.
    GilbertElliott {
        /// Probability, 0 to 1, to change with a packet from the good state to the bad one.
        to_bad: f64,
        /// Probability, 0 to 1, to change with a packet from the bad state to the good one.
        to_good: f64,
        /// Probability, 0 to 1, of a loss in the bad state.
        in_bad: f64,
        /// Probability, 0 to 1, of a loss in the good state.
        in_good: f64,
    },
    /// The packets with these numbers are lost, counted from 1 in the order in which they come.
    Listed(Vec<u64>),
}

impl Loss {
    /// The first parameter that is outside its range: its name, its value, and the range.
    pub(crate) fn mistake(&self) -> Option<(&'static str, String, &'static str)> {
        let probabilities = match self {
            Self::Uniform(probability) => vec![("loss", probability)],
            Self::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            } => vec![
                ("loss.to_bad", to_bad),
                ("loss.to_good", to_good),
                ("loss.in_bad", in_bad),
                ("loss.in_good", in_good),
            ],
            Self::Listed(numbers) => {
                let zero = numbers.iter().find(|number| **number == 0);
                return zero.map(|zero| ("loss", zero.to_string(), "numbers of packets, from 1"));
            }
        };
        let mut probabilities = probabilities.into_iter();
        let wrong = probabilities.find(|(_, value)| !(0.0..=1.0).contains(*value));
        wrong.map(|(name, value)| (name, value.to_string(), "0 to 1"))
    }
}
