//! What a key's value must be: each function reads one, or says what is wrong with it.

use std::fmt::Display;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use pillion_bundler::cgroup_id;
use toml::Spanned;
use toml::de::DeValue;

use super::mistake::Mistake;
use crate::attach::parse_peer;

pub type Value<'a> = Spanned<DeValue<'a>>;
pub type Read<T> = Result<T, Mistake>;

/// One entry, or a list of them; of a list, every mistake is told.
pub fn list<T>(
    value: &Value,
    read: impl Fn(&Value) -> Read<T>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<T> {
    let entries = match value.get_ref() {
        DeValue::Array(array) => &array[..],
        _ => std::slice::from_ref(value),
    };
    if entries.is_empty() {
        let text = "an empty list; for any, leave the key out";
        mistakes.push(Mistake::new(value.span(), text));
    }
    let results = entries.iter().map(read);
    results
        .filter_map(|result| result.map_err(|mistake| mistakes.push(mistake)).ok())
        .collect()
}

pub fn ports(value: &Value) -> Read<RangeInclusive<u16>> {
    let expected = "a port from 1 to 65535, or a range as in \"8000-8100\"";
    if let DeValue::Integer(_) = value.get_ref() {
        let port = number(value, 1..=u16::MAX.into(), expected)? as u16;
        return Ok(port..=port);
    }
    let text = string(value, expected)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(wrong(value, expected)),
    }
}

pub fn peer(value: &Value) -> Read<IpNet> {
    let text = string(value, "an address or a network, as in \"192.0.2.0/24\"")?;
    parse_peer(text).map_err(|expected| Mistake::new(value.span(), format!("`{text}`; {expected}")))
}

pub fn cgroup(value: &Value) -> Read<u64> {
    let path = string(
        value,
        "a cgroup's path, as in \"/system.slice/game.service\"",
    )?;
    cgroup_id(path).map_err(|error| {
        let remedy = "/proc/PID/cgroup names that of a process, on the line that begins with 0::";
        Mistake::new(value.span(), format!("{error}; {remedy}"))
    })
}

pub fn uid(value: &Value) -> Read<u32> {
    number(value, 0..=u32::MAX - 1, "a user's numeric id, as in 1000")
}

/// One of a few words.
pub fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Read<T> {
    let names: Vec<_> = words
        .iter()
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    let expected = names.join(" or ");
    let text = string(value, &expected)?;
    let found = words.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| wrong(value, &expected))
}

pub fn number(value: &Value, range: RangeInclusive<u32>, expected: &str) -> Read<u32> {
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(wrong(value, expected));
    };
    u32::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| wrong(value, expected))
}

/// A number with or without a fraction, as it is written.
pub fn decimal<'a>(value: &'a Value, expected: &str) -> Read<&'a str> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str()),
        DeValue::Float(number) => Ok(number.as_str()),
        _ => Err(wrong(value, expected)),
    }
}

pub fn string<'a>(value: &'a Value, expected: &str) -> Read<&'a str> {
    let found = value.get_ref().as_str();
    found.ok_or_else(|| wrong(value, expected))
}

pub fn boolean(value: &Value) -> Read<bool> {
    let found = value.get_ref().as_bool();
    found.ok_or_else(|| wrong(value, "true or false"))
}

fn wrong(value: &Value, expected: &str) -> Mistake {
    let found: &dyn Display = match value.get_ref() {
        DeValue::String(text) => text,
        DeValue::Integer(number) => number,
        other => &other.type_str(),
    };
    Mistake::new(value.span(), format!("`{found}`; expected {expected}"))
}
