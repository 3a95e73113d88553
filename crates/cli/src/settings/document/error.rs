use std::fmt::{self, Display};
use std::ops::Range;

use serde::de::{self, Expected, Unexpected};
use toml::de::DeValue;

use super::{Mistake, Value};

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
    pub(super) fn at_scalar(self, value: &Value) -> Self {
        match value.get_ref() {
            DeValue::Table(_) => self,
            _ => self.at(value),
        }
    }

    /// The error at a key, unless its span is known.
    pub(super) fn at_key(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }

    pub(super) fn expected(what: String) -> Self {
        Self {
            what: What::Expected(what),
            span: None,
        }
    }

    pub(super) fn into_mistake(self, value: &Value) -> Mistake {
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
        Self::custom(super::known::unknown(key, known))
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
