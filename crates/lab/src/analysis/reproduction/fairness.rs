use std::collections::BTreeMap;

use pillion_trace::measure::jain_index;

use super::Digest;
use crate::measure_ref::JAIN_OF_ALL;

/// What is compared with what a stream is due, of each stream.
const GOODPUT: &str = "received_goodput_bit_per_s";

impl Digest {
    /// Adds to each group Jain's index over the streams of all groups, of their goodput relative to what
    /// each is due (thesis, section 2.7.2), in bit/s by group. None unless that is known of all.
    pub fn add_fairness(&mut self, due: &BTreeMap<String, f64>) {
        let relative = self.groups.iter().map(|(name, group)| {
            let due = due.get(name).filter(|due| **due > 0.0)?;
            let goodputs = group.streams.get(GOODPUT)?.iter();
            Some(goodputs.map(move |goodput| goodput / due))
        });
        let relative: Option<Vec<_>> = relative.collect();
        let index = relative.and_then(|all| jain_index(all.into_iter().flatten()));
        if let Some(index) = index {
            for group in self.groups.values_mut() {
                group.values.insert(JAIN_OF_ALL.to_owned(), index);
            }
        }
    }
}
