//! The file of rules that `attach --config` reads; docs/policy.md describes it.

mod condition;
pub mod options;
mod rule;

use std::path::Path;

use pillion_bundler::{Error, Mode, Policy, Scope};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::BadInput;
use crate::toml_file::{self, Mistake};

/// Reads the policy for this network namespace, with the rules in their order.
///
/// # Errors
/// [`BadInput`] with a line for each mistake: `FILE:LINE:COLUMN: what; remedy`, or one
/// that says why the file cannot be read.
pub fn load(path: &Path, allow_unsafe: bool) -> Result<Policy, BadInput> {
    toml_file::load(path, "docs/policy.md", |document, mistakes| {
        read(document, allow_unsafe, mistakes)
    })
}

fn read(document: &DeTable, allow_unsafe: bool, mistakes: &mut Vec<Mistake>) -> Policy {
    let mut defaults = options::none(allow_unsafe);
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
        (true, place) => options::all(&defaults, place).map(|(options, _)| Mode::Allow(options)),
        (false, _) => Ok(Mode::LeaveAlone),
    };
    Policy {
        rules,
        otherwise: otherwise.unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            Mode::LeaveAlone
        }),
        scope: Scope::ThisNamespace,
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests;
