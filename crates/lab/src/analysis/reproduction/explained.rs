//! What causes explain.

use pillion_stats::report::{Column, Table, number};

use super::{Claim, Estimate, Judged, Row, Verdict};

/// Has each claim that several causes explain explained by the one with which most of these hold.
pub(super) fn by_the_cause_that_explains_most(judged: &mut [(&Claim, Judged)]) {
    let causes = judged.first().map_or(0, |(_, judged)| judged.holds.len());
    let held: Vec<_> = (0..causes).map(|cause| count_held(judged, cause)).collect();
    for (_, judged) in judged.iter_mut().filter(|(_, it)| it.is_explained()) {
        let explains = (0..causes).rev().filter(|cause| judged.holds_with(*cause));
        judged.cause = explains.max_by_key(|cause| held[*cause]);
    }
}

fn count_held(judged: &[(&Claim, Judged)], cause: usize) -> usize {
    judged.iter().filter(|(_, it)| it.holds_with(cause)).count()
}

impl Judged {
    fn holds_with(&self, cause: usize) -> bool {
        self.holds[cause] == Some(true)
    }

    /// Whether it holds with the cause that is shown.
    fn is_explained(&self) -> bool {
        self.cause.is_some_and(|cause| self.holds_with(cause))
    }

    /// The measure, and whether the claim holds, as in [`Row::kernels`].
    pub(super) fn by_kernel(&self) -> impl Iterator<Item = (&[Estimate], Option<bool>)> {
        let causes = self.causes.iter().map(Vec::as_slice);
        let causes = causes.zip(self.holds.iter().copied());
        std::iter::once((self.today.as_slice(), self.holds_today())).chain(causes)
    }

    /// Whether it holds today; `None` where that is not known.
    fn holds_today(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Near => Some(true),
            Verdict::Changed | Verdict::Miss => Some(false),
            _ => None,
        }
    }

    /// Whether it holds with none of the causes, of which there are some.
    fn holds_today_alone(&self) -> bool {
        !self.holds.is_empty() && self.holds.iter().all(|it| *it == Some(false))
    }
}

impl Row {
    /// What a verdict means here, in a sentence.
    pub(super) fn why(&self, judged: &Judged) -> String {
        let cause = judged.cause.map(|place| self.causes[place].1.as_str());
        let why = match (judged.verdict, cause) {
            (Verdict::Near, _) if judged.holds_today_alone() => "holds today alone".to_owned(),
            (Verdict::Near, _) => String::new(),
            (Verdict::Changed, Some(cause)) => format!("holds if {cause}"),
            (Verdict::Changed | Verdict::Miss, _) => "no cause is shown".to_owned(),
            (Verdict::Undecided, Some(cause)) if judged.is_explained() => {
                format!("more seeds would tell for today; holds if {cause}")
            }
            (Verdict::Undecided, Some(cause)) => {
                format!("more seeds would tell whether it holds if {cause}")
            }
            (Verdict::Undecided, None) => "more seeds would tell".to_owned(),
            (Verdict::NotRun, _) if judged.today.is_empty() => "its runs were not made".to_owned(),
            (Verdict::NotRun, _) => {
                "does not hold today; not all runs of causes were made".to_owned()
            }
            (Verdict::NotMeasured, _) => {
                "its runs have no such measure or group, or nothing that it could be of".to_owned()
            }
        };
        match (judged.without, judged.verdict) {
            (0, _) | (_, Verdict::NotMeasured | Verdict::NotRun) => why,
            (without, _) => {
                let so = number::counted(without as u64, "run");
                format!(
                    "{why}{}{so} without it",
                    if why.is_empty() { "" } else { "; " }
                )
            }
        }
    }

    /// With each cause, how many of the claims hold of which that is known; nothing where nothing is.
    pub(super) fn causes_table(&self) -> Option<Table> {
        let columns = [
            Column::left("if").wrapped(80),
            Column::right("numbers that hold"),
        ];
        let mut table = Table::new("What explains how much", columns);
        let judged = self.judged();
        let known = |answers: Vec<Option<bool>>| {
            let known = answers.iter().flatten();
            let held = known.clone().filter(|it| **it).count();
            (known.clone().count() > 0).then(|| format!("{held} of {}", known.count()))
        };
        let today = judged.iter().map(|(_, it)| it.holds_today());
        table.row(["all is as today".to_owned(), known(today.collect())?]);
        for (place, (_, is)) in self.causes.iter().enumerate() {
            let with = judged.iter().map(|(_, it)| it.holds[place]).collect();
            if let Some(held) = known(with) {
                table.row([is.clone(), held]);
            }
        }
        (!self.causes.is_empty()).then_some(table)
    }
}
