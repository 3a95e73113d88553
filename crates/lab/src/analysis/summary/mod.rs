//! What was measured, for people: text and tables that the report shows as well.

mod counts;
mod notes;
#[cfg(test)]
mod tests;
mod times;
mod worth;

use pillion_stats::report::{Table, number};
use pillion_trace::Outcome;
use pillion_trace::measure::{Results, Together};

use crate::analysis::Trace;
pub(crate) use times::value;

/// Results, and what it takes to tell of them.
pub struct Summary<'a> {
    /// What was measured.
    pub results: &'a Results,
    /// The percentiles that are shown, from 0 to 100.
    pub percentiles: &'a [f64],
    /// What was read; sender first.
    pub traces: &'a [Trace],
}

impl Summary<'_> {
    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.heading() + "\n\n";
        text += &self.counts().to_text();
        text += "\n";
        text += &self.times().to_text();
        for note in self.notes() {
            text += &format!("\nnote: {note}");
        }
        text + "\n"
    }

    /// The traces' names and what they hold, in a line.
    #[must_use]
    pub fn heading(&self) -> String {
        let names: Vec<&str> = self.traces.iter().map(Trace::file_name).collect();
        let connections = match self.results.connections.len() {
            1 => "1 connection".to_owned(),
            more => format!("{} connections", number::count(more as u64)),
        };
        let seconds = number::seconds(self.results.duration_s);
        format!("{}: {connections}, {seconds} s", names.join(" and "))
    }

    /// How the clocks of two traces relate, in a sentence.
    #[must_use]
    pub fn clocks(&self) -> Option<String> {
        let clock = self.results.clock.as_ref()?;
        let round_trip = clock.round_trip_ms?;
        let mut text = format!("shortest round trip {} ms", number::millis(round_trip));
        if clock.same {
            text += ", one clock for both traces";
        } else if let (Some(ahead), Some(drift)) = (clock.ahead_ms, clock.drift_ppm) {
            // Rounded to nothing, a negative number keeps its sign unless 0 is added.
            let rounded = |value: f64, digits: f64| (value * digits).round() / digits + 0.0;
            let (ahead, drift) = (rounded(ahead, 1e3), rounded(drift, 10.0));
            let drifts = match clock.drift_uncertainty_ppm {
                Some(within) => {
                    let within = (within * 10.0).ceil() / 10.0;
                    format!(" and drifts by {drift} ppm, to within {within} ppm")
                }
                None => String::new(),
            };
            text += &format!(
                "; the receiver's clock is ahead by {ahead} ms{drifts}, if the shortest delay is \
                 the same both ways"
            );
        }
        Some(text)
    }

    /// Connections, volume, loss, fairness, one column for all and one for each group.
    #[must_use]
    pub fn counts(&self) -> Table {
        counts::table(self)
    }

    /// Distributions by percentiles.
    #[must_use]
    pub fn times(&self) -> Table {
        times::table(self)
    }

    /// What one has to know of the traces to take the results right.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        notes::notes(self)
    }

    /// All connections, then each group.
    pub fn together(&self) -> impl Iterator<Item = (&str, &Together)> {
        let groups = self.results.groups.iter();
        let groups = groups.map(|group| (group.name.as_deref().unwrap_or_default(), group));
        std::iter::once(("all", &self.results.all)).chain(groups)
    }
}

/// What became of an attempt to connect, in words.
#[must_use]
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotSeen => "not seen",
        Outcome::Unanswered => "unanswered",
        Outcome::Refused => "refused",
        Outcome::Completed => "completed",
        Outcome::Reset => "reset",
    }
}
