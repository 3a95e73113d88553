//! A figure at other values of what was varied.

use pillion_stats::names::run;

use super::{DigestedRun, Sketch};

impl Sketch {
    /// The figure at each value that runs have of what all its curves have in common, as in
    /// `loss=10`; in front as it was published. Beside each stand those values.
    pub(super) fn at_values(&self, runs: &[DigestedRun]) -> Vec<(Vec<String>, Self)> {
        let mut all = vec![(Vec::new(), self.clone())];
        for own in self.in_common() {
            let values = values(own, runs);
            let at_values = all.iter().flat_map(|(chosen, sketch)| {
                values.iter().map(|value| {
                    let mut chosen = chosen.clone();
                    chosen.push((*value).to_owned());
                    (chosen, sketch.at(own, value))
                })
            });
            all = at_values.collect();
        }
        all
    }

    /// The parts of names of runs that give something a value, the same one for all curves.
    fn in_common(&self) -> Vec<&str> {
        let Some((first, others)) = self.curves.split_first() else {
            return Vec::new();
        };
        let parts = first.subject.runs.iter().filter(|part| {
            let is_of_all = || others.iter().all(|it| it.subject.runs.contains(part));
            run::key(part).is_some() && is_of_all()
        });
        parts.map(String::as_str).collect()
    }

    /// The figure at one value in the place of another. What is to be expected is so at its own.
    fn at(&self, own: &str, value: &str) -> Self {
        let mut sketch = self.clone();
        if own == value {
            return sketch;
        }
        for curve in &mut sketch.curves {
            let parts = curve.subject.runs.iter_mut();
            parts
                .filter(|part| *part == own)
                .for_each(|part| value.clone_into(part));
        }
        sketch.expect_nothing();
        sketch.title += &format!(", at {value}");
        sketch
    }
}

/// What runs have in the place of a part of their names: itself, then the others.
fn values<'a>(own: &'a str, runs: &'a [DigestedRun]) -> Vec<&'a str> {
    let names = runs.iter().map(|it| it.name.as_str());
    let others = run::values(names, run::key(own).unwrap_or_default());
    let others = others.into_iter().filter(|it| *it != own);
    std::iter::once(own).chain(others).collect()
}
