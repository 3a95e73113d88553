//! Reading a table key by key.

use std::fmt::Display;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::times::parse_ms;
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Read, Value, wrong};

/// The table that a key's value must be.
pub fn table<'a, 'i>(value: &'a Value<'i>) -> Read<&'a DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(wrong(value, "a table")),
    }
}

/// Tables by name, in its order, so that a run read from its own file is the same.
pub fn named<'a, 'i>(
    value: &'a Value<'i>,
    what: &str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<(&'a Spanned<std::borrow::Cow<'i, str>>, &'a Value<'i>)> {
    let DeValue::Table(tables) = value.get_ref() else {
        let text = format!("no table; begin each {what} with [{what}.NAME]");
        mistakes.push(Mistake::new(value.span(), text));
        return Vec::new();
    };
    let tables: Vec<_> = tables.iter().collect();
    for (name, _) in &tables {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.get_ref().is_empty() || !name.get_ref().chars().all(allowed) {
            let text = format!(
                "`{}` is no name; use letters, digits, -, _ and .",
                name.get_ref()
            );
            mistakes.push(Mistake::new(name.span(), text));
        }
    }
    tables
}

/// A key that the table does not have.
pub fn unknown(key: &Spanned<impl Display>, known: &[&str]) -> Mistake {
    let text = format!(
        "unknown key `{}`; known: {}",
        key.get_ref(),
        known.join(", ")
    );
    Mistake::new(key.span(), text)
}

/// Milliseconds.
pub fn milliseconds(value: &Value) -> Read<Duration> {
    let expected = "milliseconds, as in 75";
    let text = value::decimal(value, expected)?;
    parse_ms(text).map_err(|_| wrong(value, expected))
}

/// Per cent, as a share.
pub fn share(value: &Value) -> Read<f64> {
    let expected = "per cent, 0 to 100";
    let text = value::decimal(value, expected)?;
    parse_share(text).ok_or_else(|| wrong(value, expected))
}

/// The same of a part of a text.
pub fn parse_share(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// Mbit/s, as bits per second.
pub fn rate(value: &Value) -> Read<u64> {
    let expected = "Mbit/s above 0, as in 5";
    let text = value::decimal(value, expected)?;
    let rate: Option<f64> = text.parse().ok();
    match rate.map(|mbit| (mbit * 1e6).round()) {
        Some(bits) if (1.0..=1e12).contains(&bits) => Ok(bits as u64),
        _ => Err(wrong(value, expected)),
    }
}

/// Kernel parameters: names, and numbers or texts.
pub fn sysctls(value: &Value, mistakes: &mut Vec<Mistake>) -> pillion_lab::experiment::Sysctls {
    let Some(table) = value::keep(table(value), mistakes) else {
        return Default::default();
    };
    let mut sysctls = pillion_lab::experiment::Sysctls::new();
    for (name, value) in table {
        match value.get_ref() {
            DeValue::String(text) => sysctls.insert(name.get_ref().to_string(), text.to_string()),
            DeValue::Integer(number) => {
                sysctls.insert(name.get_ref().to_string(), number.to_string())
            }
            DeValue::Table(_) => {
                let text = "a table; write the parameter's name in quotes, as in \
                            \"net.ipv4.tcp_sack\" = 1";
                mistakes.push(Mistake::new(name.span(), text));
                continue;
            }
            _ => {
                mistakes.push(wrong(value, "a number or a text"));
                continue;
            }
        };
        let mut parts = name.get_ref().split('.');
        if !name.get_ref().starts_with("net.") || parts.any(str::is_empty) {
            let text = format!(
                "`{}` is no parameter of a network namespace; expected one that begins with net.",
                name.get_ref()
            );
            mistakes.push(Mistake::new(name.span(), text));
        }
    }
    sysctls
}
