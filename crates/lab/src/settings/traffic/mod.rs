//! Groups of streams: one from the options of `traffic send`, several from the file of `send
//! --config`. docs/lab/traffic.md describes the keys.

mod endpoints;
mod group;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, Value, merge, span_of};
use pillion_cli::settings::times::to_ms;
use pillion_cli::settings::{BadInput, times};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::time_text::parse_time;
use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{ConfigError, Write, read_writes};

pub use endpoints::{ReceiverOptions, SenderOptions};
pub use group::{Group, KindName, Switch};

/// Invalid option, or one that contradicts another.
#[derive(Debug)]
pub struct InvalidOption {
    /// Name of the option.
    pub option: &'static str,
    /// Mistake, with options in backticks, and the remedy after a semicolon.
    pub text: String,
}

impl InvalidOption {
    fn new(option: &'static str, text: String) -> Self {
        Self { option, text }
    }
}

/// Converts a mistake to the names of the command line: `itt` becomes --itt.
#[must_use]
pub fn to_bad_input(invalid: InvalidOption) -> BadInput {
    let names = keys::<Group>().into_iter().chain(keys::<ReceiverOptions>());
    BadInput(names.fold(invalid.text, |text, name| {
        text.replace(&format!("`{name}`"), &format!("--{name}"))
    }))
}

/// Contents of a file of groups.
#[derive(Debug, PartialEq)]
pub struct GroupFile {
    /// Groups in the order of the file.
    pub groups: Vec<crate::traffic::Group>,
    /// Time during which messages are due.
    pub duration: Option<Duration>,
    /// Seed of times, sizes and content.
    pub seed: u64,
}

/// Loads the groups of a file.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &Path) -> Result<GroupFile, BadInput> {
    document::load(path, "docs/lab/traffic.md", read)
}

const MAX_STREAMS: usize = 65_535;

fn read(document: &DeTable, mistakes: &mut Vec<Mistake>) -> GroupFile {
    let mut defaults = DeTable::new();
    let mut file = GroupFile {
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
                "expected a list of tables; start each group with [[group]]",
            )),
            ("defaults", _) => {
                (defaults, _) = document::defaults::<Group>(value, &OWN_KEYS, mistakes);
            }
            ("duration", _) => {
                let length = document::read(value, mistakes);
                file.duration = length.map(|times::PositiveDuration(time)| time);
            }
            ("seed", _) => {
                let seed: Option<u32> = document::read(value, mistakes);
                file.seed = seed.map_or(file.seed, u64::from);
            }
            (unknown, _) => mistakes.push(Mistake::new(
                key.span(),
                format!("unknown key `{unknown}`; known: duration, seed, [defaults] and [[group]]"),
            )),
        }
    }
    if !document.contains_key("group") {
        let text = "missing group; start one with [[group]]";
        mistakes.push(Mistake::new(0..0, text));
    }
    let has_valid_duration = file.duration.is_some() || !document.contains_key("duration");
    let mut streams = 0;
    for table in tables {
        let DeValue::Table(own) = table.get_ref() else {
            let text = "expected a table; start each group with [[group]]";
            mistakes.push(Mistake::new(table.span(), text));
            continue;
        };
        let keys = merged(own, &defaults);
        let span = |option| span_of(&keys, &[option]).unwrap_or(table.span());
        let value = Spanned::new(table.span(), DeValue::Table(keys.clone()));
        let Some((group, invalid_keys)) = document::read_valid::<Group>(&value, mistakes) else {
            continue;
        };
        // Errors that follow from another error are not reported.
        if invalid_keys
            .iter()
            .any(|key| ["kind", "profile"].contains(key))
        {
            continue;
        }
        let group = match group.group() {
            Ok(group) => group,
            Err(invalid) => {
                mistakes.push(Mistake::new(span(invalid.option), invalid.text));
                continue;
            }
        };
        if !invalid_keys.is_empty() {
            continue;
        }
        if has_valid_duration && let Err(error) = group.validate(file.duration, file.seed) {
            mistakes.push(Mistake::new(
                span(option_of_error(&error)),
                error.to_string(),
            ));
        }
        let before = streams;
        streams += group.streams;
        if before <= MAX_STREAMS && streams > MAX_STREAMS {
            let error = ConfigError::Streams(streams);
            mistakes.push(Mistake::new(span("streams"), error.to_string()));
        }
        file.groups.push(group);
    }
    file
}

/// Returns the option that a mistake of a group is about.
pub(crate) fn option_of_error(error: &ConfigError) -> &'static str {
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

/// Writes of an application to replay: `file:FILE`, a CSV file with the header `gap_ms,size`, or
/// `list:GAP=SIZE,…`, as in `list:12.5ms=120,30ms=80`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writes(pub Arc<[Write]>);

impl Writes {
    /// Reads a CSV file.
    ///
    /// # Errors
    /// [`BadInput`] with the invalid line, or with the reason of the system.
    pub fn read(file: &Path) -> Result<Self, BadInput> {
        let writes = read_writes(file).map_err(|error| BadInput(error.to_string()))?;
        match writes.is_empty() {
            true => Err(BadInput(format!(
                "{}: empty list of writes",
                file.display()
            ))),
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
                gap: parse_time(gap.trim()).ok()?,
                size: size.filter(|size| (1..=MAX_SIZE).contains(size))?,
            })
        };
        let list = text.strip_prefix("list:");
        let writes = list.and_then(|list| list.split(',').map(write).collect());
        writes.map(Self).ok_or_else(|| {
            BadInput(format!(
                "invalid writes `{text}`: expected \"file:FILE\", or \"list:12.5ms=120,30ms=80\", the time \
                 since the previous write and the size of each write, 1 to {MAX_SIZE} bytes"
            ))
        })
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter();
        let each = each.map(|write| format!("{}ms={}", to_ms(write.gap), write.size));
        write!(f, "list:{}", each.collect::<Vec<_>>().join(","))
    }
}

/// Keys that `[defaults]` cannot have.
pub(crate) const OWN_KEYS: [&str; 3] = ["name", "start", "duration"];

/// Keys that a profile replaces.
const KIND_KEYS: [&str; 7] = [
    "kind",
    "itt",
    "size",
    "think",
    "response-size",
    "rate",
    "writes",
];

/// Merges a group's own keys with the defaults that apply to its kind.
pub(crate) fn merged<'i>(own: &DeTable<'i>, defaults: &DeTable<'i>) -> DeTable<'i> {
    let kind = own.get("kind").or(defaults.get("kind"));
    let kind = kind.and_then(|kind| document::read(kind, &mut Vec::new()));
    let kind: KindName = kind.unwrap_or_default();
    let profile = own.contains_key("profile");
    let has_kind_keys = KIND_KEYS.iter().any(|key| own.contains_key(*key));
    let applies = |key: &str| match key {
        "profile" => !has_kind_keys,
        "ramp-up" => profile || kind.accepts(key),
        _ if KIND_KEYS.contains(&key) => !profile && kind.accepts(key),
        _ => profile || kind.accepts(key),
    };
    let defaults = defaults.iter().filter(|(key, _)| applies(key.get_ref()));
    let defaults = defaults.map(|(key, value)| (key.clone(), value.clone()));
    let mut merged: DeTable = defaults.collect();
    merge(&mut merged, own);
    merged
}

#[cfg(test)]
mod tests;
