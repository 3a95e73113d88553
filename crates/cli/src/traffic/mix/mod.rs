//! The file of groups that `send --config` reads; docs/traffic.md describes it.

pub mod group;

use std::path::Path;
use std::time::Duration;

use pillion_traffic::{ConfigError, Group};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::group::option_of;
use crate::toml_file::value::{self, keep};
use crate::toml_file::{self, Mistake};
pub use group::length;
use group::{Given, KEYS};
use pillion_settings::BadInput;

/// What such a file says.
#[derive(Debug, PartialEq)]
pub struct Mix {
    pub groups: Vec<Group>,
    pub duration: Option<Duration>,
    pub seed: u64,
}

/// Reads the groups in their order.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &Path) -> Result<Mix, BadInput> {
    toml_file::load(path, "docs/traffic.md", read)
}

fn read(document: &DeTable, mistakes: &mut Vec<Mistake>) -> Mix {
    let mut defaults = Given::new(&KEYS, &[]);
    let mut mix = Mix {
        groups: Vec::new(),
        duration: None,
        seed: 1,
    };
    let mut tables: &[Spanned<DeValue>] = &[];
    for (key, value) in document {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("group", DeValue::Array(array)) => tables = array,
            ("group", _) => mistakes.push(Mistake::new(
                key.span(),
                "`group` is no list of tables; begin each group with [[group]]",
            )),
            ("defaults", DeValue::Table(table)) => defaults.read(table, mistakes),
            ("duration", _) => mix.duration = keep(length(value), mistakes),
            ("seed", _) => {
                let seed = keep(value::unsigned(value), mistakes);
                mix.seed = seed.map_or(mix.seed, u64::from);
            }
            (unknown, _) => mistakes.push(Mistake::new(
                key.span(),
                format!(
                    "unknown key `{unknown}`; a file has the keys `duration` and `seed`, and \
                     [defaults] and [[group]] tables"
                ),
            )),
        }
    }
    if !document.contains_key("group") {
        let text = "no group; begin one with [[group]]";
        mistakes.push(Mistake::new(0..0, text));
    }
    let lasts = mix.duration.is_some() || !document.contains_key("duration");
    let mut streams = 0;
    for table in tables {
        let Some((group, places)) = group::read(table, &defaults, &[], mistakes) else {
            continue;
        };
        if lasts && let Err(error) = group.validate(mix.duration, mix.seed) {
            mistakes.push(Mistake::new(
                places.of(option_of(&error)),
                error.to_string(),
            ));
        }
        let before = streams;
        streams += group.streams;
        if before <= MOST_STREAMS && streams > MOST_STREAMS {
            let error = ConfigError::Streams(streams);
            mistakes.push(Mistake::new(places.of("streams"), error.to_string()));
        }
        mix.groups.push(group);
    }
    mix
}

const MOST_STREAMS: usize = 65_535;

#[cfg(test)]
mod tests;
