//! The gate: what verification costs may not grow unseen.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::report::Costs;

/// What was accepted of all kernels, as `verifier-cost.csv` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    kernel: String,
    program: String,
    instructions: u32,
}

const HEADING: &str = "kernel,program,instructions";

/// How it is told that growth is meant.
pub const REMEDY: &str = "if that is meant: make kernels-accept";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("verifier-cost.csv")
}

impl Accepted {
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
            bail!("the first line is not {HEADING}");
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

    /// What was accepted of a program, in instructions.
    pub fn of(&self, kernel: &str, program: &str) -> Option<u32> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.kernel == kernel && row.program == program)?;
        Some(row.instructions)
    }

    /// Takes what was measured for a kernel in place of what was accepted before.
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

    /// A line for each program that is not known, or has grown by more than a tenth.
    pub fn objections(&self, kernel: &str, costs: &Costs) -> Vec<String> {
        let objection = |(program, cost): (&String, &u32)| match self.of(kernel, program) {
            None => Some(format!(
                "{program}: {cost} verified instructions, and none were accepted so far; {REMEDY}"
            )),
            Some(accepted) if u64::from(*cost) * 10 > u64::from(accepted) * 11 => Some(format!(
                "{program}: {cost} verified instructions, over a tenth more than the {accepted} \
                 accepted; {REMEDY}"
            )),
            Some(_) => None,
        };
        costs.iter().filter_map(objection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(of: &[(&str, u32)]) -> Costs {
        of.iter()
            .map(|(name, cost)| ((*name).to_owned(), *cost))
            .collect()
    }

    #[test]
    fn growth_beyond_a_tenth_and_unknown_programs_are_refused() {
        let mut accepted = Accepted::default();
        accepted.accept("6.1", &costs(&[("a", 100), ("b", 100), ("gone", 7)]));
        assert!(
            accepted
                .objections("6.1", &costs(&[("a", 110), ("b", 1)]))
                .is_empty()
        );
        let measured = costs(&[("a", 111), ("b", 100), ("new", 1)]);
        let objections = accepted.objections("6.1", &measured);
        assert_eq!(objections.len(), 2, "{objections:?}");
        assert!(objections[0].starts_with("a: 111 verified instructions, over a tenth"));
        assert!(objections[1].starts_with("new: 1 verified instructions, and none"));
        // What one kernel may cost says nothing of another.
        assert_eq!(accepted.objections("6.12", &measured).len(), 3);
        accepted.accept("6.1", &measured);
        assert!(accepted.objections("6.1", &measured).is_empty());
        assert_eq!(accepted.of("6.1", "gone"), None);
    }

    #[test]
    fn the_file_says_again_what_was_written() {
        let mut accepted = Accepted::default();
        accepted.accept("newest", &costs(&[("b", 2), ("a", 1)]));
        accepted.accept("6.1", &costs(&[("a", 3)]));
        let text = accepted.to_text();
        assert_eq!(
            text,
            format!("{HEADING}\n6.1,a,3\nnewest,a,1\nnewest,b,2\n")
        );
        assert_eq!(Accepted::parse(&text).unwrap(), accepted);
        assert!(Accepted::parse("nothing").is_err());
        assert!(Accepted::parse(&format!("{HEADING}\n6.1,a,many\n")).is_err());
    }

    #[test]
    fn the_file_of_this_source_can_be_read() {
        Accepted::read().unwrap();
    }
}
