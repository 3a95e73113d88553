//! A figure at other values of what was varied.

use super::{DigestedRun, Sketch};
use crate::run_key::{Part, values};

impl Sketch {
    /// The figure at each value that runs have of what all its curves have in common, as in
    /// `loss=10`; in front as it was published. Beside each stand those values.
    pub(super) fn at_values(&self, runs: &[DigestedRun]) -> Vec<(Vec<String>, Self)> {
        let mut all = vec![(Vec::new(), self.clone())];
        for own in self.in_common() {
            let values = own_and_others(own, runs);
            let at_values = all.iter().flat_map(|(chosen, sketch)| {
                values.iter().map(|value| {
                    let mut chosen = chosen.clone();
                    chosen.push(value.to_string());
                    (chosen, sketch.at(own, value))
                })
            });
            all = at_values.collect();
        }
        all
    }

    /// The parts of names of runs that give something a value, the same one for all curves.
    fn in_common(&self) -> Vec<&Part> {
        let Some((first, others)) = self.curves.split_first() else {
            return Vec::new();
        };
        let parts = first.subject.runs.parts().iter();
        let parts = parts.filter(|part| {
            let is_of_all = || {
                others
                    .iter()
                    .all(|it| it.subject.runs.parts().contains(part))
            };
            part.key().is_some() && is_of_all()
        });
        parts.collect()
    }

    /// The figure at one value in the place of another. What is to be expected is so at its own.
    fn at(&self, own: &Part, value: &Part) -> Self {
        let mut sketch = self.clone();
        if own == value {
            return sketch;
        }
        for curve in &mut sketch.curves {
            curve.subject.runs = curve.subject.runs.replacing(own, value);
        }
        sketch.expect_nothing();
        sketch.title += &format!(", at {value}");
        sketch
    }
}

/// What runs have in the place of a part of their names: itself, then the others.
fn own_and_others<'a>(own: &'a Part, runs: &'a [DigestedRun]) -> Vec<&'a Part> {
    let names = runs.iter().map(|it| &it.name);
    let others = values(names, own.key().unwrap_or_default());
    let others = others.into_iter().filter(|it| *it != own);
    std::iter::once(own).chain(others).collect()
}
