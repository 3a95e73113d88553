/// Which packets of one direction are lost, behind the bottleneck.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Each with the same probability, 0 to 1, whatever became of the others.
    Uniform(f64),
    /// In runs: a path with a good and a bad state (Gilbert and Elliott).
    GilbertElliott {
        /// Probability, for each packet, to go from the good state to the bad one.
        to_bad: f64,
        /// And back.
        to_good: f64,
        /// Probability of a loss in the bad state.
        in_bad: f64,
        /// And in the good one.
        in_good: f64,
    },
    /// The IP packets with these numbers, from 1, in the order in which they come.
    Listed(Vec<u64>),
}
