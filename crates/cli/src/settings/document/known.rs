//! Refuses unknown keys. serde cannot combine `flatten`, for tables with the keys of several structs,
//! with `deny_unknown_fields`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Struct whose serde implementation ignores unknown keys; [`flattened`] implements it from
/// `#[serde(remote = "Self")]`.
pub trait Flattened: Default + Serialize {
    /// Reads the struct by serde's derived implementation.
    fn derived<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

/// Reads the struct, and refuses unknown keys.
pub fn deserialize<'de, T: Flattened, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(KnownKeys(PhantomData))
}

/// Returns all keys of a struct in their order. Every key must be serialized, even if unset.
pub fn keys<T: Default + Serialize>() -> Vec<String> {
    let text = serde_json::to_string(&T::default());
    let keys: Option<Keys> = text.ok().and_then(|text| serde_json::from_str(&text).ok());
    keys.map(|Keys(keys)| keys).unwrap_or_default()
}

/// Formats the error for an unknown key.
pub fn unknown(key: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    format!("unknown key `{key}`; known: {}", known.join(", "))
}

struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }
}

struct KnownKeys<T>(PhantomData<T>);

impl<'de, T: Flattened> Visitor<'de> for KnownKeys<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let known = keys::<T>();
        T::derived(MapAccessDeserializer::new(Checked { map, known }))
    }
}

struct Checked<A> {
    map: A,
    known: Vec<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Checked<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let known = &self.known;
        self.map.next_key_seed(CheckedKey { seed, known })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

struct CheckedKey<'a, K> {
    seed: K,
    known: &'a [String],
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for CheckedKey<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<K::Value, D::Error> {
        let key = String::deserialize(from)?;
        if !self.known.contains(&key) {
            return Err(D::Error::custom(unknown(&key, self.known)));
        }
        self.seed
            .deserialize(serde::de::value::StringDeserializer::new(key))
    }
}

/// Implements serde's traits for a struct with flattened fields.
#[doc(hidden)]
#[macro_export]
macro_rules! __flattened {
    ($name:ident) => {
        impl $crate::settings::document::known::Flattened for $name {
            /// Reads the struct by serde's derived implementation.
            fn derived<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $name::deserialize(from)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::settings::document::known::deserialize(from)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, to)
            }
        }
    };
}

pub use __flattened as flattened;
