//! What a table says, and what it takes from another.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::known::{keys, unknown};
use super::{Mistake, Value, read, table};

/// Puts what `over` says in place of what `base` says, table by table.
pub fn merge<'i>(base: &mut DeTable<'i>, over: &DeTable<'i>) {
    for (key, value) in over {
        let there = base.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        match (there, value.get_ref()) {
            (Some(DeValue::Table(there)), DeValue::Table(over)) => merge(there, over),
            _ => {
                // So that the key is the one beside the value.
                base.remove(&**key.get_ref());
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The table without keys that are not known, each of which is told.
pub fn known_part<'i>(
    table: &DeTable<'i>,
    known: &[String],
    mistakes: &mut Vec<Mistake>,
) -> DeTable<'i> {
    let mut fitting = DeTable::new();
    for (key, value) in table {
        if known.iter().any(|known| known == key.get_ref()) {
            fitting.insert(key.clone(), value.clone());
        } else {
            let text = unknown(key.get_ref(), known);
            mistakes.push(Mistake::new(key.span(), text));
        }
    }
    fitting
}

/// What `[defaults]` say of tables of a kind, but for the keys that each such table has for itself;
/// and the same as far as it is sound.
pub fn defaults<'i, T: Default + Serialize + DeserializeOwned>(
    value: &Value<'i>,
    own: &[&str],
    mistakes: &mut Vec<Mistake>,
) -> (DeTable<'i>, T) {
    let Some(given) = table(value, mistakes) else {
        return Default::default();
    };
    let mut known = keys::<T>();
    known.retain(|key| !own.contains(&key.as_str()));
    let given = known_part(given, &known, mistakes);
    let whole = Spanned::new(value.span(), DeValue::Table(given.clone()));
    let found = read(&whole, mistakes).unwrap_or_default();
    (given, found)
}
