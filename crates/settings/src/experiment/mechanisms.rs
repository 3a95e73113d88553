use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Mechanism, Setting, Sysctls, recovery};
use crate::document::known::unknown;

/// The key that sets all mechanisms which another kernel had otherwise.
const AS_IN: &str = "as-in";

/// What TCP's mechanisms on a host are set to; what is not named is as in the kernel.
///
/// In files, `as-in = "linux-3.12"` sets what recovery of losses is made of to what that kernel
/// did; what is named beside it is as named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mechanisms(BTreeMap<Mechanism, &'static Setting>);

impl Mechanisms {
    /// Whether one is set, on or off.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.0.contains_key(&mechanism)
    }

    /// The kernel parameters that set them.
    pub(super) fn sysctls(&self) -> Sysctls {
        let all = self.0.iter();
        let all = all.map(|(one, setting)| (one.sysctl().to_owned(), setting.value.to_owned()));
        all.collect()
    }
}

impl Serialize for Mechanisms {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let words = self.0.iter();
        to.collect_map(words.map(|(mechanism, setting)| (mechanism.name(), Word(setting.word))))
    }
}

struct Word<'a>(&'a str);

impl Serialize for Word<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            "on" => to.serialize_bool(true),
            "off" => to.serialize_bool(false),
            variant => to.serialize_str(variant),
        }
    }
}

impl<'de> Deserialize<'de> for Mechanisms {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Switches)
    }
}

struct Switches;

impl<'de> Visitor<'de> for Switches {
    type Value = Mechanisms;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mechanisms, A::Error> {
        let mut all = BTreeMap::new();
        let mut of_then = Vec::new();
        while let Some(key) = map.next_key()? {
            let word = map.next_value::<OwnedWord>().ok();
            let word = word.as_ref().map_or("", |OwnedWord(word)| word);
            match key {
                Key::Mechanism(mechanism) => {
                    let setting = mechanism.setting(word);
                    let setting = setting.ok_or_else(|| A::Error::custom(expected(mechanism)))?;
                    all.insert(mechanism, setting);
                }
                Key::AsIn => {
                    let kernel = recovery::of(word);
                    of_then = kernel.ok_or_else(|| A::Error::custom(expected_kernel()))?;
                }
            }
        }
        for (mechanism, setting) in of_then {
            all.entry(mechanism).or_insert(setting);
        }
        Ok(Mechanisms(all))
    }
}

fn expected_kernel() -> String {
    let names: Vec<_> = recovery::names()
        .map(|name| format!("\"{name}\""))
        .collect();
    format!("expected {}", names.join(" or "))
}

fn expected(mechanism: Mechanism) -> String {
    let settings = mechanism.settings().iter();
    let others = settings.filter(|setting| !["on", "off"].contains(&setting.word));
    let others = others.map(|setting| format!(" or \"{}\"", setting.word));
    format!("expected true or false{}", others.collect::<String>())
}

enum Key {
    Mechanism(Mechanism),
    AsIn,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == AS_IN {
            return Ok(Self::AsIn);
        }
        let found = Mechanism::all().find(|one| one.name() == name);
        found.map(Self::Mechanism).ok_or_else(|| {
            let known = Mechanism::all().map(Mechanism::name).chain([AS_IN]);
            D::Error::custom(unknown(&name, &known.collect::<Vec<_>>()))
        })
    }
}

struct OwnedWord(String);

impl<'de> Deserialize<'de> for OwnedWord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Whether(bool),
            Variant(String),
        }
        Ok(Self(match Written::deserialize(from)? {
            Written::Whether(true) => "on".to_owned(),
            Written::Whether(false) => "off".to_owned(),
            Written::Variant(name) => name,
        }))
    }
}
