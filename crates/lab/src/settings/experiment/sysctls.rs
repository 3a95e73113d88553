//! Kernel parameters of a network namespace by name, as in `"net.ipv4.tcp_sack" = 1`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Sysctls;
use pillion_cli::settings::text::Text;

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Sysctls, D::Error> {
    let all = BTreeMap::<Parameter, Value>::deserialize(from)?;
    let all = all.into_iter();
    Ok(all
        .map(|(Parameter(name), Value(text))| (name, text))
        .collect())
}

pub(super) fn serialize<S: Serializer>(sysctls: &Sysctls, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(
        sysctls
            .iter()
            .map(|(name, text)| (name, Value(text.clone()))),
    )
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Parameter(String);

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == "net" {
            return Err(D::Error::custom(
                "a table; write the parameter's name in quotes, as in \"net.ipv4.tcp_sack\" = 1",
            ));
        }
        if !name.starts_with("net.") || name.split('.').any(str::is_empty) {
            return Err(D::Error::custom(format!(
                "`{name}` is no parameter of a network namespace; expected one that begins with \
                 net."
            )));
        }
        Ok(Self(name))
    }
}

struct Value(String);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Text(&self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberOrText).map(Self)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }
}
