//! Values with a textual form, as in `30:3`. A field `#[serde(with = "text")]` has the same form in
//! files as on the command line, where numbers need no quotes.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use pillion_bpf::units::TextVisitor;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parses the text.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    from.deserialize_any(visitor())
}

/// Writes the text, or a number if it is one.
pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let text = value.to_string();
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) if number.to_string() == text => to.serialize_i64(number),
        (_, Ok(number)) if number.to_string() == text => to.serialize_f64(number),
        _ => to.serialize_str(&text),
    }
}

/// Reads a line of plain text, without control characters that a terminal would execute.
pub fn some_line<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let line = String::deserialize(from)?;
    if line.chars().any(char::is_control) {
        return Err(D::Error::custom(
            "expected a line of plain text, without control characters",
        ));
    }
    Ok(Some(line))
}

/// Optional values with a textual form.
pub mod option {
    use super::{Deserializer, Display, FromStr, Serialize, Serializer, Text};

    /// Parses the text.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        super::deserialize(from).map(Some)
    }

    /// Writes the text.
    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Text).serialize(to)
    }
}

/// One value with a textual form, or a list of them.
pub mod list {
    use super::{Deserializer, Display, FromStr, ListVisitor, PhantomData, Serializer, Text};

    /// Parses the text.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        from.deserialize_any(ListVisitor(PhantomData))
    }

    /// Writes the text.
    pub fn serialize<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(Text))
    }
}

/// Wrapper that serializes a value in its textual form.
pub struct Text<T>(pub T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, to)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        deserialize(from).map(Self)
    }
}

/// Reads a value in its textual form.
fn visitor<T: FromStr<Err: Display>>() -> TextVisitor<T> {
    TextVisitor {
        parse: |text| text.parse().map_err(|error: T::Err| error.to_string()),
        expected: "a number, or a string as on the command line",
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: Display>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(Text(value)) = values.next_element()? {
            all.push(value);
        }
        if all.is_empty() {
            return Err(A::Error::custom(
                "an empty list; remove the key to match any value",
            ));
        }
        Ok(all)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        visitor().visit_str(text).map(|value| vec![value])
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }
}

// Whole numbers with a minimum.

/// Reads a whole number of at least 1.
pub fn positive<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + PartialEq + From<u8>,
    D: Deserializer<'de>,
{
    let number = T::deserialize(from)?;
    match number == T::from(0) {
        true => Err(D::Error::custom("expected a whole number of at least 1")),
        false => Ok(number),
    }
}

/// Reads an optional whole number of at least 1.
pub fn some_positive<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de> + PartialEq + From<u8>,
    D: Deserializer<'de>,
{
    positive(from).map(Some)
}
