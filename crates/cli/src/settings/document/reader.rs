use std::borrow::Cow;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::Value;
use super::error::{Error, either};

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
