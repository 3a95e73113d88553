use toml::de::DeTable;

use super::KindName;
use pillion_cli::settings::document::{self, merge};

/// The keys that every group has for itself.
pub(crate) const OWN_KEYS: [&str; 3] = ["name", "start", "duration"];

/// The keys that a profile takes the place of.
const OF_THE_KIND: [&str; 7] = ["kind", "itt", "size", "think", "answer", "rate", "writes"];

/// A group's own keys, and the defaults that say something of such a group.
pub(crate) fn whole<'i>(own: &DeTable<'i>, defaults: &DeTable<'i>) -> DeTable<'i> {
    let kind = own.get("kind").or(defaults.get("kind"));
    let kind = kind.and_then(|kind| document::read(kind, &mut Vec::new()));
    let kind: KindName = kind.unwrap_or_default();
    let profile = own.contains_key("profile");
    let of_a_kind = OF_THE_KIND.iter().any(|key| own.contains_key(*key));
    let fits = |key: &str| match key {
        "profile" => !of_a_kind,
        "ramp-up" => profile || kind.has(key),
        _ if OF_THE_KIND.contains(&key) => !profile && kind.has(key),
        _ => profile || kind.has(key),
    };
    let defaults = defaults.iter().filter(|(key, _)| fits(key.get_ref()));
    let defaults = defaults.map(|(key, value)| (key.clone(), value.clone()));
    let mut whole: DeTable = defaults.collect();
    merge(&mut whole, own);
    whole
}
