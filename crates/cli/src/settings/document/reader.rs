//! Reads values of a TOML file through serde, with the positions of errors.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::ops::Range;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::known::unknown;
use super::{Mistake, Value};

/// Deserializer of a value, whose errors have a position.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a, 'i>(pub(super) &'a Value<'i>);

impl<'de> Deserializer<'de> for Reader<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let visited = match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => integer(number, visitor),
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(Error::expected("a number".to_owned())),
            },
            DeValue::Boolean(switch) => visitor.visit_bool(*switch),
            DeValue::Datetime(_) => {
                let found = Unexpected::Other("date");
                Err(Error::invalid_type(found, &visitor))
            }
            DeValue::Array(values) => visitor.visit_seq(Values(values.iter())),
            DeValue::Table(table) => visitor.visit_map(Entries {
                rest: table.iter(),
                value: None,
            }),
        };
        visited.map_err(|error| error.at_scalar(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let visited = match self.0.get_ref() {
            DeValue::String(text) => {
                let word: StrDeserializer<Error> = text.as_ref().into_deserializer();
                visitor.visit_enum(word)
            }
            _ => Err(Error::expected(either(variants))),
        };
        visited.map_err(|error| error.at(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn integer<'de, V: Visitor<'de>>(number: &DeInteger, visitor: V) -> Result<V::Value, Error> {
    let (digits, radix) = (number.as_str(), number.radix());
    if let Ok(number) = u64::from_str_radix(digits, radix) {
        return visitor.visit_u64(number);
    }
    match i64::from_str_radix(digits, radix) {
        Ok(number) => visitor.visit_i64(number),
        Err(_) => Err(Error::invalid_value(
            Unexpected::Other("number"),
            &visitor as &dyn Expected,
        )),
    }
}

struct Values<'a, 'i>(std::slice::Iter<'a, Value<'i>>);

impl<'de> SeqAccess<'de> for Values<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let value = self.0.next();
        let read = |value| {
            let read = seed.deserialize(Reader(value));
            read.map_err(|error| error.at_scalar(value))
        };
        value.map(read).transpose()
    }
}

type Key<'i> = Spanned<Cow<'i, str>>;

struct Entries<'a, 'i, I> {
    rest: I,
    value: Option<&'a Value<'i>>,
}

impl<'de, 'a, 'i: 'a, I> MapAccess<'de> for Entries<'a, 'i, I>
where
    I: Iterator<Item = (&'a Key<'i>, &'a Value<'i>)>,
{
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<Error> = key.get_ref().as_ref().into_deserializer();
        let read = seed.deserialize(name);
        read.map(Some).map_err(|error| error.at_key(key.span()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(value) = self.value.take() else {
            return Err(Error::custom("value without a key"));
        };
        let read = seed.deserialize(Reader(value));
        read.map_err(|error| error.at_scalar(value))
    }
}

/// Reads a value, or reports every mistake in it.
///
/// serde stops at the first mistake. So each key, and each entry of a list, is then tried separately;
/// missing keys have defaults.
pub fn read<T: DeserializeOwned>(value: &Value, mistakes: &mut Vec<Mistake>) -> Option<T> {
    let whole = match T::deserialize(Reader(value)) {
        Ok(found) => return Some(found),
        Err(error) => error,
    };
    let known = mistakes.len();
    for (single, leaf) in leaves(value) {
        if let Err(error) = T::deserialize(Reader(&single)) {
            mistakes.push(error.into_mistake(leaf));
        }
    }
    if mistakes.len() == known {
        mistakes.push(whole.into_mistake(value));
    }
    None
}

/// Reads a table. Reports every mistake, and then reads the valid keys only; also returns the keys that
/// were skipped.
pub fn read_valid<'a, T: DeserializeOwned>(
    value: &'a Value,
    mistakes: &mut Vec<Mistake>,
) -> Option<(T, Vec<&'a str>)> {
    let known = mistakes.len();
    let found = read(value, mistakes);
    if let Some(found) = found {
        return Some((found, Vec::new()));
    }
    let mut skipped = Vec::new();
    let mut valid = DeTable::new();
    for (key, inner) in value.get_ref().as_table()? {
        let span = inner.span();
        let mut wrong = mistakes[known..].iter().map(|mistake| &mistake.span);
        let is_within = |part: &Range<usize>| span.start <= part.start && part.end <= span.end;
        match wrong.any(|part| is_within(part) || *part == key.span()) {
            true => skipped.push(key.get_ref().as_ref()),
            false => {
                valid.insert(key.clone(), inner.clone());
            }
        }
    }
    let valid = Spanned::new(value.span(), DeValue::Table(valid));
    let found = T::deserialize(Reader(&valid)).ok()?;
    Some((found, skipped))
}

/// Returns, for each leaf, a copy of the value with only this leaf, and the leaf.
fn leaves<'a, 'i>(value: &'a Value<'i>) -> Vec<(Value<'i>, &'a Value<'i>)> {
    let within = |inner| Spanned::new(value.span(), inner);
    match value.get_ref() {
        DeValue::Table(table) if !table.is_empty() => {
            let singles = table.iter().flat_map(|(key, value)| {
                leaves(value).into_iter().map(move |(single, leaf)| {
                    let mut table = DeTable::new();
                    table.insert(key.clone(), single);
                    (within(DeValue::Table(table)), leaf)
                })
            });
            singles.collect()
        }
        DeValue::Array(values) if !values.is_empty() => {
            let singles = values.iter().map(|value| {
                let mut array = DeArray::new();
                array.push(value.clone());
                (within(DeValue::Array(array)), value)
            });
            singles.collect()
        }
        _ => vec![(value.clone(), value)],
    }
}

/// Returns the value as a table, or reports a mistake.
pub fn table<'a, 'i>(value: &'a Value<'i>, mistakes: &mut Vec<Mistake>) -> Option<&'a DeTable<'i>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        mistakes.push(type_mismatch(value, "a table"));
    }
    table
}

/// Creates the mistake for a value of another type than `expected`.
pub fn type_mismatch(value: &Value, expected: &str) -> Mistake {
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

/// Returns the span of the value at `path`, or of the innermost table of the path that exists.
pub fn span_of(table: &DeTable, path: &[&str]) -> Option<Range<usize>> {
    let (key, rest) = path.split_first()?;
    let value = table.get(*key)?;
    let inner = value.get_ref().as_table();
    let inner = inner.and_then(|table| span_of(table, rest));
    Some(inner.unwrap_or(value.span()))
}

/// Why a value is invalid.
#[derive(Debug)]
pub(super) struct Error {
    kind: ErrorKind,
    span: Option<Range<usize>>,
}

#[derive(Debug)]
enum ErrorKind {
    /// The expected value.
    Expected(String),
    /// The complete text.
    Message(String),
}

impl Error {
    /// Sets the position to this value, unless a part of it is already set.
    pub(super) fn at(self, value: &Value) -> Self {
        if self.span.is_some() {
            return self;
        }
        Self {
            kind: ErrorKind::Message(self.kind.message(value)),
            span: Some(value.span()),
        }
    }

    /// Sets the position to this value unless it is a table, whose keys have their own positions.
    fn at_scalar(self, value: &Value) -> Self {
        match value.get_ref() {
            DeValue::Table(_) => self,
            _ => self.at(value),
        }
    }

    /// Sets the position to a key, unless it is already set.
    fn at_key(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }

    pub(super) fn expected(expected: String) -> Self {
        Self {
            kind: ErrorKind::Expected(expected),
            span: None,
        }
    }

    fn into_mistake(self, value: &Value) -> Mistake {
        let Self { kind, span } = self.at(value);
        Mistake::new(span.unwrap_or(0..0), kind.message(value))
    }
}

impl ErrorKind {
    fn message(&self, value: &Value) -> String {
        let found: &dyn Display = match value.get_ref() {
            DeValue::String(text) => text,
            DeValue::Integer(number) => number,
            DeValue::Float(number) => number,
            DeValue::Boolean(switch) => switch,
            other => &other.type_str(),
        };
        match self {
            Self::Expected(expected) => format!("`{found}`; expected {expected}"),
            Self::Message(text) => text.clone(),
        }
    }
}

/// Translates serde's Rust type names.
fn type_name(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => "a number from 0 to 255".to_owned(),
        "u16" => "a number from 0 to 65535".to_owned(),
        "u32" => format!("a number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        // A value of an enum in a table with the keys of several structs.
        "string or map" => "a string".to_owned(),
        struct_or_map if struct_or_map.starts_with("struct ") || struct_or_map == "a map" => {
            "a table".to_owned()
        }
        _ => text,
    }
}

/// Formats `"a" or "b"`.
pub(super) fn either(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    quoted.join(" or ")
}

impl de::Error for Error {
    fn custom<T: Display>(text: T) -> Self {
        let text = text.to_string();
        Self {
            kind: match text.strip_prefix("expected ") {
                Some(expected) => ErrorKind::Expected(expected.to_owned()),
                None => ErrorKind::Message(text),
            },
            span: None,
        }
    }

    fn invalid_type(_: Unexpected, expected: &dyn Expected) -> Self {
        Self::expected(type_name(expected))
    }

    fn invalid_value(_: Unexpected, expected: &dyn Expected) -> Self {
        Self::expected(type_name(expected))
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        Self::expected(either(known))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::custom(unknown(key, known))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Expected(expected) => write!(f, "expected {expected}"),
            ErrorKind::Message(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
