//! Evaluates values that depend on a run's parameters, as in `"= 100 / n"`.

use std::collections::BTreeMap;

use exmex::Express as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use pillion_cli::settings::document::{Mistake, Value, read};

/// Table of a run's parameters, each with a single number after the expansion.
pub(super) const PARAMETERS: &str = "parameter";

/// First character of an expression.
const SIGN: char = '=';

/// Parameters of a run by name: the value, and whether an expression uses it.
#[derive(Debug, Default)]
pub(super) struct Parameters(BTreeMap<String, (f64, bool)>);

impl Parameters {
    /// Removes the parameters from a run's document.
    pub(super) fn take(document: &mut DeTable, mistakes: &mut Vec<Mistake>) -> Self {
        let table = document.remove(PARAMETERS);
        let table = table.as_ref().and_then(|value| value.get_ref().as_table());
        let numbers = table.into_iter().flatten().filter_map(|(name, value)| {
            let number: f64 = read(value, mistakes)?;
            Some((name.get_ref().to_string(), (number, false)))
        });
        Self(numbers.collect())
    }

    /// Returns the names of parameters that no expression uses.
    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.0.iter().filter(|(_, (_, used))| !used);
        unused.map(|(name, _)| name.as_str())
    }

    /// Evaluates the document's expressions to numbers in TOML, in the order of [`replace`].
    pub(super) fn evaluate(
        &mut self,
        document: &DeTable,
        mistakes: &mut Vec<Mistake>,
    ) -> Vec<String> {
        let mut numbers = Vec::new();
        for (_, value) in document {
            self.collect(value, &mut numbers, mistakes);
        }
        numbers
    }

    fn collect(&mut self, value: &Value, into: &mut Vec<String>, mistakes: &mut Vec<Mistake>) {
        match value.get_ref() {
            DeValue::Table(table) => into.extend(self.evaluate(table, mistakes)),
            DeValue::Array(values) => {
                for value in values {
                    self.collect(value, into, mistakes);
                }
            }
            DeValue::String(text) => {
                let Some(expression) = text.strip_prefix(SIGN) else {
                    return;
                };
                let number = self.number(expression).unwrap_or_else(|why| {
                    let text = format!("`{text}`; {why}");
                    mistakes.push(Mistake::new(value.span(), text));
                    // 1 is valid for nearly every key, so no other error follows.
                    1.0
                });
                into.push(match number.fract() == 0.0 && number.abs() < 1e15 {
                    true => format!("{number:.0}"),
                    false => format!("{number:?}"),
                });
            }
            _ => {}
        }
    }

    /// Creates a set with one parameter.
    fn one(name: &str, value: f64) -> Self {
        Self(BTreeMap::from([(name.to_owned(), (value, false))]))
    }

    fn number(&mut self, expression: &str) -> Result<f64, String> {
        let parsed = exmex::parse::<f64>(expression);
        let parsed = parsed.map_err(|_| {
            "expected an expression of numbers and parameters, as in \"= 100 / n\"".to_owned()
        })?;
        let mut values = Vec::new();
        for name in parsed.var_names() {
            let Some((number, used)) = self.0.get_mut(name) else {
                return Err(format!(
                    "unknown parameter `{name}`; define it in [{PARAMETERS}], as in {name} = [1, 2, 4]"
                ));
            };
            *used = true;
            values.push(*number);
        }
        match parsed.eval(&values) {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err("the result is not a finite number; check for division by 0".to_owned()),
        }
    }
}

/// Evaluates an expression of one parameter; `None` if it is invalid or the result is not finite.
pub(super) fn at(text: &str, parameter: &str, value: f64) -> Option<f64> {
    let expression = text.strip_prefix(SIGN)?;
    Parameters::one(parameter, value).number(expression).ok()
}

/// Replaces the document's expressions by these numbers.
pub(super) fn replace<'i>(document: &mut DeTable<'i>, numbers: &mut impl Iterator<Item = &'i str>) {
    for (_, value) in document.iter_mut() {
        replace_in(value, numbers);
    }
}

fn replace_in<'i>(value: &mut Value<'i>, numbers: &mut impl Iterator<Item = &'i str>) {
    match Spanned::get_mut(value) {
        DeValue::Table(table) => replace(table, numbers),
        DeValue::Array(values) => {
            for value in values.iter_mut() {
                replace_in(value, numbers);
            }
        }
        inner @ DeValue::String(_) => {
            let is_expression = inner.as_str().is_some_and(|text| text.starts_with(SIGN));
            let number = is_expression.then(|| numbers.next()).flatten();
            if let Some(Ok(number)) = number.map(DeValue::parse) {
                *inner = number.into_inner();
            }
        }
        _ => {}
    }
}
