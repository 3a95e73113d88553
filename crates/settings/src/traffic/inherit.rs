use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::KindName;
use crate::document::known::{keys, unknown};
use crate::document::{self, Mistake, Value, merge};

/// The keys that every group has for itself.
const OWN_KEYS: [&str; 3] = ["name", "start", "duration"];

/// Those that a profile takes the place of.
const OF_THE_KIND: [&str; 5] = ["kind", "itt", "size", "think", "answer"];

/// What defaults can say of groups; tells what is wrong with the rest.
pub(crate) fn known_part<'i, G: Default + Serialize + DeserializeOwned>(
    value: &Value<'i>,
    mistakes: &mut Vec<Mistake>,
) -> DeTable<'i> {
    let mut known = keys::<G>();
    known.retain(|key| !OWN_KEYS.contains(&key.as_str()));
    let mut fitting = DeTable::new();
    let Some(defaults) = document::table(value, mistakes) else {
        return fitting;
    };
    for (key, value) in defaults {
        if known.iter().any(|known| known == key.get_ref()) {
            fitting.insert(key.clone(), value.clone());
        } else {
            let text = unknown(key.get_ref(), &known);
            mistakes.push(Mistake::new(key.span(), text));
        }
    }
    let value = Spanned::new(value.span(), DeValue::Table(fitting.clone()));
    let _: Option<G> = document::read(&value, mistakes);
    fitting
}

/// A group's own keys, and the defaults that say something of such a group.
pub(crate) fn whole<'i>(own: &DeTable<'i>, defaults: &DeTable<'i>) -> DeTable<'i> {
    let kind = own.get("kind").or(defaults.get("kind"));
    let kind = kind.and_then(|kind| document::read(kind, &mut Vec::new()));
    let kind: KindName = kind.unwrap_or_default();
    let profile = own.contains_key("profile");
    let of_a_kind = OF_THE_KIND.iter().any(|key| own.contains_key(*key));
    let fits = |key: &str| match key {
        "profile" => !of_a_kind,
        _ if OF_THE_KIND.contains(&key) => !profile && kind.has(key),
        _ => true,
    };
    let defaults = defaults.iter().filter(|(key, _)| fits(key.get_ref()));
    let defaults = defaults.map(|(key, value)| (key.clone(), value.clone()));
    let mut whole: DeTable = defaults.collect();
    merge(&mut whole, own);
    whole
}
