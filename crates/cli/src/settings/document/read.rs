use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::Error;
use super::reader::Reader;
use super::{Mistake, Value};

/// Reads a value, or tells every mistake in it.
///
/// Where serde would stop at the first one, each key is tried alone, and each entry of a list:
/// keys that are not there have defaults.
pub fn read<T: DeserializeOwned>(value: &Value, mistakes: &mut Vec<Mistake>) -> Option<T> {
    let whole = match T::deserialize(Reader(value)) {
        Ok(found) => return Some(found),
        Err(error) => error,
    };
    let known = mistakes.len();
    for (alone, leaf) in leaves(value) {
        if let Err(error) = T::deserialize(Reader(&alone)) {
            mistakes.push(error.into_mistake(leaf));
        }
    }
    if mistakes.len() == known {
        mistakes.push(whole.into_mistake(value));
    }
    None
}

/// Reads a table, or tells every mistake in it and reads what its sound keys say; with the keys that
/// are left out.
pub fn read_sound<'a, T: DeserializeOwned>(
    value: &'a Value,
    mistakes: &mut Vec<Mistake>,
) -> Option<(T, Vec<&'a str>)> {
    let known = mistakes.len();
    let found = read(value, mistakes);
    if let Some(found) = found {
        return Some((found, Vec::new()));
    }
    let mut left_out = Vec::new();
    let mut sound = DeTable::new();
    for (key, inner) in value.get_ref().as_table()? {
        let span = inner.span();
        let mut wrong = mistakes[known..].iter().map(|mistake| &mistake.span);
        let is_within = |part: &Range<usize>| span.start <= part.start && part.end <= span.end;
        match wrong.any(|part| is_within(part) || *part == key.span()) {
            true => left_out.push(key.get_ref().as_ref()),
            false => {
                sound.insert(key.clone(), inner.clone());
            }
        }
    }
    let sound = Spanned::new(value.span(), DeValue::Table(sound));
    let found = T::deserialize(Reader(&sound)).ok()?;
    Some((found, left_out))
}

/// The value once for each of its leaves, with this one alone, and the leaf.
fn leaves<'a, 'i>(value: &'a Value<'i>) -> Vec<(Value<'i>, &'a Value<'i>)> {
    let within = |inner| Spanned::new(value.span(), inner);
    match value.get_ref() {
        DeValue::Table(table) if !table.is_empty() => {
            let alone = table.iter().flat_map(|(key, value)| {
                leaves(value).into_iter().map(move |(alone, leaf)| {
                    let mut table = DeTable::new();
                    table.insert(key.clone(), alone);
                    (within(DeValue::Table(table)), leaf)
                })
            });
            alone.collect()
        }
        DeValue::Array(values) if !values.is_empty() => {
            let alone = values.iter().map(|value| {
                let mut array = DeArray::new();
                array.push(value.clone());
                (within(DeValue::Array(array)), value)
            });
            alone.collect()
        }
        _ => vec![(value.clone(), value)],
    }
}

/// The table that a value must be.
pub fn table<'a, 'i>(value: &'a Value<'i>, mistakes: &mut Vec<Mistake>) -> Option<&'a DeTable<'i>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        mistakes.push(wrong(value, "a table"));
    }
    table
}

/// Says that a value is not what was expected.
pub fn wrong(value: &Value, expected: &str) -> Mistake {
    Error::expected(expected.to_owned()).into_mistake(value)
}

/// Reads a key.
pub fn read_key<T: DeserializeOwned>(
    key: &Spanned<Cow<str>>,
    mistakes: &mut Vec<Mistake>,
) -> Option<T> {
    let text = DeValue::String(key.get_ref().as_ref().into());
    read(&Spanned::new(key.span(), text), mistakes)
}

/// Where the value of the last key on this way stands that is there.
pub fn span_of(table: &DeTable, path: &[&str]) -> Option<Range<usize>> {
    let (key, rest) = path.split_first()?;
    let value = table.get(*key)?;
    let inner = value.get_ref().as_table();
    let inner = inner.and_then(|table| span_of(table, rest));
    Some(inner.unwrap_or(value.span()))
}
