//! Gate against unnoticed growth of the verification cost.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::report::Costs;

/// Accepted costs of all kernels, stored in `verifier-cost.csv`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedCosts {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    kernel: String,
    program: String,
    instructions: u32,
}

const HEADING: &str = "kernel,program,instructions";

/// Remedy shown with each regression.
pub const REMEDY: &str = "if intended, run make kernels-accept";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("verifier-cost.csv")
}

impl AcceptedCosts {
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(path()).with_context(|| format!("{}", path().display()))?;
        Self::parse(&text).with_context(|| format!("{}", path().display()))
    }

    pub fn write(&self) -> Result<()> {
        fs::write(path(), self.to_text()).with_context(|| format!("write {}", path().display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADING) {
            bail!("invalid first line: expected {HEADING}");
        }
        let row = |line: &str| {
            let mut cells = line.split(',');
            let mut cell = || cells.next().unwrap_or_default().to_owned();
            let (kernel, program, instructions) = (cell(), cell(), cell());
            let instructions = instructions.parse().with_context(|| format!("`{line}`"))?;
            Ok(Row {
                kernel,
                program,
                instructions,
            })
        };
        let rows = lines.map(row).collect::<Result<_>>()?;
        Ok(Self { rows })
    }

    fn to_text(&self) -> String {
        let lines = self.rows.iter().map(|row| {
            let Row {
                kernel,
                program,
                instructions,
            } = row;
            format!("{kernel},{program},{instructions}\n")
        });
        format!("{HEADING}\n{}", lines.collect::<String>())
    }

    /// Returns the accepted cost of a program, in instructions.
    pub fn accepted_cost(&self, kernel: &str, program: &str) -> Option<u32> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.kernel == kernel && row.program == program)?;
        Some(row.instructions)
    }

    /// Replaces a kernel's accepted costs by measured ones.
    pub fn accept(&mut self, kernel: &str, costs: &Costs) {
        self.rows.retain(|row| row.kernel != kernel);
        let rows = costs.iter().map(|(program, instructions)| Row {
            kernel: kernel.to_owned(),
            program: program.clone(),
            instructions: *instructions,
        });
        self.rows.extend(rows);
        self.rows.sort();
    }

    /// Returns a line for each program that is unknown or has grown by more than a tenth.
    pub fn regressions(&self, kernel: &str, costs: &Costs) -> Vec<String> {
        let regression = |(program, cost): (&String, &u32)| match self
            .accepted_cost(kernel, program)
        {
            None => Some(format!(
                "{program}: {cost} verified instructions, without an accepted cost; {REMEDY}"
            )),
            Some(accepted) if u64::from(*cost) * 10 > u64::from(accepted) * 11 => Some(format!(
                "{program}: {cost} verified instructions, more than a tenth above the {accepted} \
                 accepted; {REMEDY}"
            )),
            Some(_) => None,
        };
        costs.iter().filter_map(regression).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(entries: &[(&str, u32)]) -> Costs {
        entries
            .iter()
            .map(|(name, cost)| ((*name).to_owned(), *cost))
            .collect()
    }

    #[test]
    fn cost_growth_over_tenth_and_unknown_programs_fail() {
        let mut accepted = AcceptedCosts::default();
        accepted.accept("6.1", &costs(&[("a", 100), ("b", 100), ("gone", 7)]));
        assert!(
            accepted
                .regressions("6.1", &costs(&[("a", 110), ("b", 1)]))
                .is_empty()
        );
        let measured = costs(&[("a", 111), ("b", 100), ("new", 1)]);
        let regressions = accepted.regressions("6.1", &measured);
        assert_eq!(regressions.len(), 2, "{regressions:?}");
        assert!(regressions[0].starts_with("a: 111 verified instructions, more than a tenth"));
        assert!(regressions[1].starts_with("new: 1 verified instructions, without"));
        // Accepted costs of one kernel do not apply to another.
        assert_eq!(accepted.regressions("6.12", &measured).len(), 3);
        accepted.accept("6.1", &measured);
        assert!(accepted.regressions("6.1", &measured).is_empty());
        assert_eq!(accepted.accepted_cost("6.1", "gone"), None);
    }

    #[test]
    fn accepted_costs_round_trip_through_file() {
        let mut accepted = AcceptedCosts::default();
        accepted.accept("newest", &costs(&[("b", 2), ("a", 1)]));
        accepted.accept("6.1", &costs(&[("a", 3)]));
        let text = accepted.to_text();
        assert_eq!(
            text,
            format!("{HEADING}\n6.1,a,3\nnewest,a,1\nnewest,b,2\n")
        );
        assert_eq!(AcceptedCosts::parse(&text).unwrap(), accepted);
        assert!(AcceptedCosts::parse("nothing").is_err());
        assert!(AcceptedCosts::parse(&format!("{HEADING}\n6.1,a,many\n")).is_err());
    }

    #[test]
    fn checked_in_cost_file_parses() {
        AcceptedCosts::read().unwrap();
    }
}
