//! What a key's value must be: each function reads one, or says what is wrong with it.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::DeValue;

use super::mistake::Mistake;

pub type Value<'a> = Spanned<DeValue<'a>>;
pub type Read<T> = Result<T, Mistake>;

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

/// A whole number in a range.
pub fn number(value: &Value, range: RangeInclusive<u32>, expected: &str) -> Read<u32> {
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(wrong(value, expected));
    };
    u32::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| wrong(value, expected))
}

/// A whole number of 32 bits.
pub fn unsigned(value: &Value) -> Read<u32> {
    number(value, 0..=u32::MAX, "a number from 0 to 4294967295")
}

/// A number with or without a fraction, as it is written.
pub fn decimal<'a>(value: &'a Value, expected: &str) -> Read<&'a str> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str()),
        DeValue::Float(number) => Ok(number.as_str()),
        _ => Err(wrong(value, expected)),
    }
}

/// A text.
pub fn string<'a>(value: &'a Value, expected: &str) -> Read<&'a str> {
    let found = value.get_ref().as_str();
    found.ok_or_else(|| wrong(value, expected))
}

/// True or false.
pub fn boolean(value: &Value) -> Read<bool> {
    let found = value.get_ref().as_bool();
    found.ok_or_else(|| wrong(value, "true or false"))
}

/// It is not what was expected.
pub fn wrong(value: &Value, expected: &str) -> Mistake {
    let found: &dyn Display = match value.get_ref() {
        DeValue::String(text) => text,
        DeValue::Integer(number) => number,
        DeValue::Float(number) => number,
        other => &other.type_str(),
    };
    Mistake::new(value.span(), format!("`{found}`; expected {expected}"))
}

/// What was read, if anything was.
pub fn keep<T>(result: Read<T>, mistakes: &mut Vec<Mistake>) -> Option<T> {
    result.map_err(|mistake| mistakes.push(mistake)).ok()
}
