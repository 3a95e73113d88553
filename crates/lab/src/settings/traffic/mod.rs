//! Groups of streams: one on the command line of `traffic send`, several in the file that
//! `send --config` reads; how they are sent, and received. docs/traffic.md describes it.

mod endpoints;
mod group;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, Value, merge, span_of};
use pillion_cli::settings::times::{parse_ms, to_ms};
use pillion_cli::settings::{BadInput, times};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{ConfigError, Write, read_writes};

pub use endpoints::{Receiving, Sending};
pub use group::{Group, KindName, Switch};

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
pub fn on_the_command_line(wrong: Wrong) -> BadInput {
    let names = keys::<Group>().into_iter().chain(keys::<Receiving>());
    BadInput(names.fold(wrong.text, |text, name| {
        text.replace(&format!("`{name}`"), &format!("--{name}"))
    }))
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
                mistakes.push(Mistake::new(span(wrong.option), wrong.text));
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

/// What an application wrote, to be written again: `file:FILE`, a CSV file with the heading
/// `gap_ms,size`, or `list:GAP=SIZE,…` with the same in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writes(pub Arc<[Write]>);

impl Writes {
    /// What a file says.
    ///
    /// # Errors
    /// [`BadInput`] with the line that is wrong, or the system's reason why the file cannot be read.
    pub fn read(file: &Path) -> Result<Self, BadInput> {
        let writes = read_writes(file).map_err(|error| BadInput(error.to_string()))?;
        match writes.is_empty() {
            true => Err(BadInput(format!("{}: it has no write", file.display()))),
            false => Ok(Self(writes.into())),
        }
    }
}

impl FromStr for Writes {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        if let Some(file) = text.strip_prefix("file:") {
            return Self::read(Path::new(file));
        }
        let write = |entry: &str| {
            let (gap, size) = entry.split_once('=')?;
            let size = size.trim().parse().ok();
            Some(Write {
                gap: parse_ms(gap.trim()).ok()?,
                size: size.filter(|size| (1..=MAX_SIZE).contains(size))?,
            })
        };
        let list = text.strip_prefix("list:");
        let writes = list.and_then(|list| list.split(',').map(write).collect());
        writes.map(Self).ok_or_else(|| {
            BadInput(format!(
                "`{text}` is no list of writes; expected \"file:FILE\", or \"list:12.5=120,30=80\", \
                 the milliseconds since the write before and the bytes, 1 to {MAX_SIZE}, of each"
            ))
        })
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter();
        let each = each.map(|write| format!("{}={}", to_ms(write.gap), write.size));
        write!(f, "list:{}", each.collect::<Vec<_>>().join(","))
    }
}

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

#[cfg(test)]
mod tests;
