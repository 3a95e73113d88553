//! The file of rules that `attach --config` reads; docs/policy.md describes it.

mod mistake;
mod options;
mod rule;
mod value;

use std::fs;
use std::path::Path;

use pillion_bundler::{Error, Mode, Policy, Scope};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::BadInput;
use mistake::{Mistake, locate};
use options::Given;

/// Reads the policy for this network namespace, with the rules in their order.
///
/// # Errors
/// [`BadInput`] with a line for each mistake: `FILE:LINE:COLUMN: what; remedy`, or one
/// that says why the file cannot be read.
pub fn load(path: &Path, allow_unsafe: bool) -> Result<Policy, BadInput> {
    let name = path.display();
    let bytes = fs::read(path).map_err(|error| BadInput(format!("{name}: {error}")))?;
    let (text, mut mistakes) = match String::from_utf8(bytes) {
        Ok(text) => (text, Vec::new()),
        Err(error) => {
            let end = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned();
            let mistake = Mistake::new(end..end, "not UTF-8; save the file as UTF-8");
            (text, vec![mistake])
        }
    };
    let policy = if mistakes.is_empty() {
        parse(&text, allow_unsafe, &mut mistakes)
    } else {
        Policy::default()
    };
    if mistakes.is_empty() {
        return Ok(policy);
    }
    mistakes.sort_by_key(|mistake| mistake.span.start);
    // One in [defaults] shows in each rule that takes it from there.
    mistakes.dedup_by(|a, b| a.span == b.span && a.text == b.text);
    let lines = mistakes.iter().map(|mistake| {
        let (line, column) = locate(&text, mistake.span.start);
        format!("{name}:{line}:{column}: {}", mistake.text)
    });
    Err(BadInput(lines.collect::<Vec<_>>().join("\n")))
}

fn parse(text: &str, allow_unsafe: bool, mistakes: &mut Vec<Mistake>) -> Policy {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let policy = read(document.get_ref(), allow_unsafe, mistakes);
    let line = |mistake: &Mistake| locate(text, mistake.span.start).0;
    let mut broken: Vec<Mistake> = syntax.iter().map(Mistake::syntax).collect();
    broken.sort_by_key(|mistake| mistake.span.start);
    broken.dedup_by_key(|mistake| line(mistake));
    if let Some(first) = broken.first().map(line) {
        // What is read behind a line that is no TOML is a guess, and so is what is wrong
        // with it; a value without a place in the file is made up.
        mistakes.retain(|found| !found.span.is_empty() && line(found) < first);
        mistakes.extend(broken);
    }
    policy
}

fn read(document: &DeTable, allow_unsafe: bool, mistakes: &mut Vec<Mistake>) -> Policy {
    let mut defaults = Given::new(allow_unsafe);
    let mut allow = (true, 0..0);
    let mut tables: &[Spanned<DeValue>] = &[];
    for (key, value) in document {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rule", DeValue::Array(array)) => tables = array,
            ("rule", _) => mistakes.push(Mistake::new(
                key.span(),
                "`rule` is no list of tables; begin each rule with [[rule]]",
            )),
            ("defaults", DeValue::Table(table)) => defaults.read(table, mistakes),
            ("otherwise", _) => match rule::otherwise(value) {
                Ok(yes) => allow = (yes, value.span()),
                Err(mistake) => mistakes.push(mistake),
            },
            (unknown, _) => mistakes.push(Mistake::new(
                key.span(),
                format!(
                    "unknown key `{unknown}`; a file has the key `otherwise`, and [defaults] and \
                     [[rule]] tables"
                ),
            )),
        }
    }
    if !document.contains_key("rule") && !document.contains_key("otherwise") {
        let text = "no rule; begin one with [[rule]], or say otherwise = \"allow\" or \
                    \"leave-alone\" of all connections";
        mistakes.push(Mistake::new(0..0, text));
    }
    let mut rows = 0;
    let mut rules = Vec::new();
    for table in tables {
        let Some(rule) = rule::read(table, &defaults, mistakes) else {
            continue;
        };
        let before = rows;
        rows += rule.rows();
        if before <= Policy::MAX_ROWS && rows > Policy::MAX_ROWS {
            let error = Error::TooManyRules { needed: rows };
            mistakes.push(Mistake::new(table.span(), error.to_string()));
        }
        rules.push(rule);
    }
    let otherwise = match allow {
        (true, place) => defaults
            .options(place)
            .map(|(options, _)| Mode::Allow(options)),
        (false, _) => Ok(Mode::LeaveAlone),
    };
    Policy {
        rules,
        otherwise: otherwise.unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            Mode::LeaveAlone
        }),
        scope: Scope::ThisNamespace,
    }
}

#[cfg(test)]
mod tests;
