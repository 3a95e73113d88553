//! Groups of streams: one on the command line of `traffic send`, several in the file that
//! `send --config` reads; how they are sent, and received. docs/traffic.md describes it.

mod group;
mod inherit;
mod kind;
mod receiving;
mod sending;
mod writes;

use std::path::Path;
use std::time::Duration;

use crate::traffic::ConfigError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use group::{Group, Switch};
pub(crate) use inherit::{OWN_KEYS, whole};
pub use kind::KindName;
use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, Value, span_of};
use pillion_cli::settings::{BadInput, times};
pub use receiving::Receiving;
pub use sending::Sending;
pub use writes::Writes;

/// An option that cannot be as it is, beside the others.
#[derive(Debug)]
pub struct Wrong {
    /// The option's name.
    pub option: &'static str,
    /// What it is, with options in backticks; and after a semicolon, what to do.
    pub text: String,
}

impl Wrong {
    fn new(option: &'static str, text: String) -> Self {
        Self { option, text }
    }
}

/// What is wrong, with the options as the command line has them.
#[must_use]
pub fn on_the_command_line(wrong: Vec<Wrong>) -> BadInput {
    let mut names = keys::<Group>();
    names.extend(keys::<Receiving>());
    let told = wrong.into_iter().map(|wrong| {
        names.iter().fold(wrong.text, |text, name| {
            text.replace(&format!("`{name}`"), &format!("--{name}"))
        })
    });
    BadInput(told.collect::<Vec<_>>().join("\npillion: "))
}

/// What such a file says.
#[derive(Debug, PartialEq)]
pub struct Mix {
    /// The groups, in their order.
    pub groups: Vec<crate::traffic::Group>,
    /// How long messages fall due.
    pub duration: Option<Duration>,
    /// Seed of times, sizes and content.
    pub seed: u64,
}

/// Reads the groups in their order.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &Path) -> Result<Mix, BadInput> {
    document::load(path, "docs/traffic.md", read)
}

const MOST_STREAMS: usize = 65_535;

fn read(document: &DeTable, mistakes: &mut Vec<Mistake>) -> Mix {
    let mut defaults = DeTable::new();
    let mut mix = Mix {
        groups: Vec::new(),
        duration: None,
        seed: 1,
    };
    let mut tables: &[Value] = &[];
    for (key, value) in document {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("group", DeValue::Array(array)) => tables = array,
            ("group", _) => mistakes.push(Mistake::new(
                key.span(),
                "`group` is no list of tables; begin each group with [[group]]",
            )),
            ("defaults", _) => {
                (defaults, _) = document::defaults::<Group>(value, &OWN_KEYS, mistakes);
            }
            ("duration", _) => {
                let length = document::read(value, mistakes);
                mix.duration = length.map(|times::Length(time)| time);
            }
            ("seed", _) => {
                let seed: Option<u32> = document::read(value, mistakes);
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
        let DeValue::Table(own) = table.get_ref() else {
            let text = "no table; begin each group with [[group]]";
            mistakes.push(Mistake::new(table.span(), text));
            continue;
        };
        let keys = whole(own, &defaults);
        let span = |option| span_of(&keys, &[option]).unwrap_or(table.span());
        let value = Spanned::new(table.span(), DeValue::Table(keys.clone()));
        let Some((group, left_out)) = document::read_sound::<Group>(&value, mistakes) else {
            continue;
        };
        // What follows from a mistake is none.
        if left_out.iter().any(|key| ["kind", "profile"].contains(key)) {
            continue;
        }
        let group = match group.group() {
            Ok(group) => group,
            Err(wrong) => {
                let wrong = wrong.into_iter();
                mistakes.extend(wrong.map(|it| Mistake::new(span(it.option), it.text)));
                continue;
            }
        };
        if !left_out.is_empty() {
            continue;
        }
        if lasts && let Err(error) = group.validate(mix.duration, mix.seed) {
            mistakes.push(Mistake::new(span(option_of(&error)), error.to_string()));
        }
        let before = streams;
        streams += group.streams;
        if before <= MOST_STREAMS && streams > MOST_STREAMS {
            let error = ConfigError::Streams(streams);
            mistakes.push(Mistake::new(span("streams"), error.to_string()));
        }
        mix.groups.push(group);
    }
    mix
}

/// Which option a mistake of a group is about.
pub(crate) fn option_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Streams(_) => "streams",
        ConfigError::Size(_) | ConfigError::DatagramSize(_) => "size",
        ConfigError::Rate { .. } => "rate",
        ConfigError::Distribution { what, .. } if what.contains("size") => "size",
        ConfigError::Distribution { what, .. } if what.contains("think") => "think",
        ConfigError::Distribution { .. } | ConfigError::Itt(_) | ConfigError::Messages { .. } => {
            "itt"
        }
        ConfigError::NoMessages => "messages",
        ConfigError::Start { .. } => "start",
        ConfigError::Duration => "duration",
        ConfigError::RampUp { .. } | ConfigError::RampUpTime(_) => "ramp-up",
        ConfigError::Endless
        | ConfigError::Port(_)
        | ConfigError::SourcePorts { .. }
        | ConfigError::Threads(_)
        | ConfigError::Speed(_)
        | ConfigError::NoWrites => "",
    }
}

#[cfg(test)]
mod tests;
