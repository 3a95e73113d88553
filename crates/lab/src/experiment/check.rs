use super::{Discipline, Limit, Run, Shaper};

/// Why a run cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{mistake}")]
pub struct RunError {
    /// The key of the experiment file that should change.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub mistake: RunMistake,
}

/// What may be wrong about parts of a run that are right each by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunMistake {
    /// A greedy stream sends as fast as the host can.
    #[error("the greedy streams of `{0}` have no rate to share; give the bottleneck a `rate`")]
    NoRate(String),
    /// Without a rate nothing waits.
    #[error("a limit in bandwidth-delay products needs a rate and a delay; give `rate` and `rtt`")]
    NoProduct,
    /// It shapes by itself.
    #[error("cake keeps to the rate by itself; leave `shaper` out, or choose another queue")]
    CakeInShaper,
    /// The kernel's limit has the other unit.
    #[error("{0} counts {1}; give its limit in {1}")]
    WrongUnit(&'static str, &'static str),
}

impl Run {
    /// Finds what does not go together.
    ///
    /// # Errors
    /// The first such thing.
    pub fn validate(&self) -> Result<(), RunError> {
        let fails = |key, mistake| Err(RunError { key, mistake });
        let is_greedy = |kind: &pillion_traffic::Kind| kind.name() == "greedy";
        let greedy = self.streams.iter().find(|s| is_greedy(&s.traffic.kind));
        if let (Some(streams), None) = (greedy, self.bottleneck.rate_bps) {
            return fails("rate", RunMistake::NoRate(streams.traffic.name.clone()));
        }
        let queue = &self.bottleneck.queue;
        let discipline = queue.discipline;
        if discipline == Discipline::Cake && self.bottleneck.shaper == Shaper::Tbf {
            return fails("shaper", RunMistake::CakeInShaper);
        }
        let unit = |unit| RunMistake::WrongUnit(discipline.name(), unit);
        match queue.limit {
            Some(Limit::Packets(_)) if discipline.counts_bytes() => fails("limit", unit("bytes")),
            Some(Limit::Bytes(_)) if !discipline.counts_bytes() => fails("limit", unit("packets")),
            Some(Limit::BandwidthDelayProducts(_))
                if self.bdp_bytes().is_none_or(|bytes| bytes == 0.0) =>
            {
                fails("limit", RunMistake::NoProduct)
            }
            _ => Ok(()),
        }
    }
}
