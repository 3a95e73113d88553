//! Reads values of a TOML file through serde; errors know their position.

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

/// Reads a value of a file; its errors know where they are.
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
            return Err(Error::custom("no key before a value"));
        };
        let read = seed.deserialize(Reader(value));
        read.map_err(|error| error.at_scalar(value))
    }
}

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

/// Why a value cannot be what is wanted.
#[derive(Debug)]
pub(super) struct Error {
    what: What,
    span: Option<Range<usize>>,
}

#[derive(Debug)]
enum What {
    /// What was to stand in the value's place.
    Expected(String),
    /// All that there is to be said.
    Said(String),
}

impl Error {
    /// The error at this value, unless a part of it is known to be wrong.
    pub(super) fn at(self, value: &Value) -> Self {
        if self.span.is_some() {
            return self;
        }
        Self {
            what: What::Said(self.what.of(value)),
            span: Some(value.span()),
        }
    }

    /// The error at this value, if it is no table, whose keys have spans of their own.
    fn at_scalar(self, value: &Value) -> Self {
        match value.get_ref() {
            DeValue::Table(_) => self,
            _ => self.at(value),
        }
    }

    /// The error at a key, unless its span is known.
    fn at_key(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }

    pub(super) fn expected(what: String) -> Self {
        Self {
            what: What::Expected(what),
            span: None,
        }
    }

    fn into_mistake(self, value: &Value) -> Mistake {
        let Self { what, span } = self.at(value);
        Mistake::new(span.unwrap_or(0..0), what.of(value))
    }
}

impl What {
    fn of(&self, value: &Value) -> String {
        let found: &dyn Display = match value.get_ref() {
            DeValue::String(text) => text,
            DeValue::Integer(number) => number,
            DeValue::Float(number) => number,
            DeValue::Boolean(switch) => switch,
            other => &other.type_str(),
        };
        match self {
            Self::Expected(expected) => format!("`{found}`; expected {expected}"),
            Self::Said(text) => text.clone(),
        }
    }
}

/// The field's words for what serde calls by Rust's.
fn words(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => "a number from 0 to 255".to_owned(),
        "u16" => "a number from 0 to 65535".to_owned(),
        "u32" => format!("a number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        // A word of an enum whose table has the keys of several structs.
        "string or map" => "a string".to_owned(),
        struct_or_map if struct_or_map.starts_with("struct ") || struct_or_map == "a map" => {
            "a table".to_owned()
        }
        _ => text,
    }
}

/// `"a" or "b"`.
pub(super) fn either(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    quoted.join(" or ")
}

impl de::Error for Error {
    fn custom<T: Display>(text: T) -> Self {
        let text = text.to_string();
        Self {
            what: match text.strip_prefix("expected ") {
                Some(expected) => What::Expected(expected.to_owned()),
                None => What::Said(text),
            },
            span: None,
        }
    }

    fn invalid_type(_: Unexpected, expected: &dyn Expected) -> Self {
        Self::expected(words(expected))
    }

    fn invalid_value(_: Unexpected, expected: &dyn Expected) -> Self {
        Self::expected(words(expected))
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
        match &self.what {
            What::Expected(what) => write!(f, "expected {what}"),
            What::Said(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
