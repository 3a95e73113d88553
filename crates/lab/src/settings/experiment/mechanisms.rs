use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Mechanism, Setting, Sysctls, recovery};
use pillion_cli::settings::document::known::unknown;

/// The key that sets all mechanisms which another kernel had otherwise.
const AS_IN: &str = "as-in";

/// The key of [`Mechanisms::initial_window`].
const INITIAL_WINDOW: &str = "initial-window";

/// What TCP's mechanisms on a host are set to; what is not named is as in the kernel.
///
/// In files, `as-in = "linux-3.12"` sets what recovery of losses is made of to what that kernel
/// did; what is named beside it is as named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mechanisms {
    settings: BTreeMap<Mechanism, &'static Setting>,
    /// The congestion window that connections begin with, in segments: 1 to 1000. The kernel has it
    /// from the route (`initcwnd`), not from a parameter.
    pub(super) initial_window: Option<u32>,
}

impl Mechanisms {
    /// Takes settings, and the initial window in segments.
    pub(super) fn of(
        settings: impl IntoIterator<Item = (Mechanism, &'static Setting)>,
        initial_window: Option<u32>,
    ) -> Self {
        Self {
            settings: settings.into_iter().collect(),
            initial_window,
        }
    }

    /// Whether one is set, on or off.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.settings.contains_key(&mechanism)
    }

    /// The kernel parameters that set them.
    pub(super) fn sysctls(&self) -> Sysctls {
        let all = self.settings.iter();
        let all = all.map(|(one, setting)| (one.sysctl().to_owned(), setting.value.to_owned()));
        all.collect()
    }
}

impl Serialize for Mechanisms {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (mechanism, setting) in &self.settings {
            map.serialize_entry(mechanism.name(), &Word(setting.word))?;
        }
        if let Some(segments) = self.initial_window {
            map.serialize_entry(INITIAL_WINDOW, &segments)?;
        }
        map.end()
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
        let mut all = Mechanisms::default();
        let mut of_then = Mechanisms::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Mechanism(mechanism) => {
                    let setting = mechanism.setting(&word(&mut map));
                    let setting = setting.ok_or_else(|| A::Error::custom(expected(mechanism)))?;
                    all.settings.insert(mechanism, setting);
                }
                Key::InitialWindow => {
                    let segments = map.next_value().ok();
                    let segments = segments.filter(|segments| INITIAL_WINDOWS.contains(segments));
                    let expected = || A::Error::custom("expected segments, 1 to 1000");
                    all.initial_window = Some(segments.ok_or_else(expected)?);
                }
                Key::AsIn => {
                    let kernel = recovery::of(&word(&mut map));
                    of_then = kernel.ok_or_else(|| A::Error::custom(expected_kernel()))?;
                }
            }
        }
        for (mechanism, setting) in of_then.settings {
            all.settings.entry(mechanism).or_insert(setting);
        }
        all.initial_window = all.initial_window.or(of_then.initial_window);
        Ok(all)
    }
}

/// What [`Mechanisms::initial_window`] may be.
const INITIAL_WINDOWS: RangeInclusive<u32> = 1..=1000;

/// The word that a key is set to; an empty one if it is none.
fn word<'de, A: MapAccess<'de>>(map: &mut A) -> String {
    map.next_value::<OwnedWord>()
        .map_or_else(|_| String::new(), |OwnedWord(word)| word)
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
    InitialWindow,
    AsIn,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        match name.as_str() {
            AS_IN => return Ok(Self::AsIn),
            INITIAL_WINDOW => return Ok(Self::InitialWindow),
            _ => {}
        }
        let found = Mechanism::all().find(|one| one.name() == name);
        found.map(Self::Mechanism).ok_or_else(|| {
            let known = Mechanism::all()
                .map(Mechanism::name)
                .chain([INITIAL_WINDOW, AS_IN]);
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
