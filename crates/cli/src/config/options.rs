//! The keys that say how to bundle, and beside what: those options of the command line, under the same
//! names and with the same values.

use std::collections::BTreeMap;
use std::ops::Range;

use clap::Parser;
use pillion_bundler::{Companions, Options};
use toml::de::DeTable;

use super::mistake::Mistake;
use super::value::{Read, Value, boolean, decimal, number, string};
use crate::bundling::BundlingArgs;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Decimal,
    Flag,
}

const KEYS: [(&str, Kind); 16] = [
    ("thin", Kind::Text),
    ("rtt", Kind::Text),
    ("wait-for-loss", Kind::Flag),
    ("level", Kind::Text),
    ("target", Kind::Decimal),
    ("max-packets", Kind::Number),
    ("max-bytes", Kind::Number),
    ("reaction", Kind::Text),
    ("loss-rule", Kind::Text),
    ("without-sack", Kind::Flag),
    ("linear-timeouts", Kind::Flag),
    ("nodelay", Kind::Flag),
    ("rto-min", Kind::Decimal),
    ("delack-max", Kind::Decimal),
    ("user-timeout", Kind::Decimal),
    ("congestion", Kind::Text),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().map(|(name, _)| name)
}

/// The options that a file gives, those of a rule in place of the defaults.
#[derive(Clone)]
pub struct Given {
    allow_unsafe: bool,
    /// As on the command line, by key, with the place in the file.
    arguments: BTreeMap<&'static str, (String, Range<usize>)>,
}

impl Given {
    pub fn new(allow_unsafe: bool) -> Self {
        Self {
            allow_unsafe,
            arguments: BTreeMap::new(),
        }
    }

    /// Reads a table that has no other keys.
    pub fn read(&mut self, table: &DeTable, mistakes: &mut Vec<Mistake>) {
        for (key, value) in table {
            if !self.set(key.get_ref(), value, mistakes) {
                let known: Vec<_> = names().collect();
                let text = format!(
                    "unknown key `{}`; known: {}",
                    key.get_ref(),
                    known.join(", ")
                );
                mistakes.push(Mistake::new(key.span(), text));
            }
        }
    }

    /// Reads one option; false if there is none of this name.
    pub fn set(&mut self, key: &str, value: &Value, mistakes: &mut Vec<Mistake>) -> bool {
        let Some((name, kind)) = KEYS.into_iter().find(|(name, _)| *name == key) else {
            return false;
        };
        match argument(name, kind, value) {
            Ok(Some(argument)) => {
                self.arguments.insert(name, (argument, value.span()));
            }
            Ok(None) => {
                self.arguments.remove(name);
            }
            Err(mistake) => mistakes.push(mistake),
        }
        true
    }

    /// All of them together; the rule stands at `place`.
    pub fn options(&self, place: Range<usize>) -> Read<(Options, Companions)> {
        let mut arguments: Vec<&str> = self.arguments.values().map(|(text, _)| &text[..]).collect();
        if self.allow_unsafe {
            arguments.push("--unsafe");
        }
        let reaction = self.arguments.get("reaction");
        let place = reaction.map_or(place, |(_, place)| place.clone());
        let bundling = parse(&arguments).map_err(|text| Mistake::new(place.clone(), text))?;
        let options = bundling.options();
        options
            .map(|options| (options, bundling.companions.companions()))
            .map_err(|error| Mistake::new(place, error.to_string()))
    }
}

/// The option as on the command line; none for a flag that is off.
fn argument(name: &str, kind: Kind, value: &Value) -> Read<Option<String>> {
    let argument = match kind {
        Kind::Flag => return Ok(boolean(value)?.then(|| format!("--{name}"))),
        Kind::Text => format!("--{name}={}", string(value, "a string")?),
        Kind::Number => {
            let number = number(value, 0..=u32::MAX, "a number from 0 to 4294967295")?;
            format!("--{name}={number}")
        }
        Kind::Decimal => format!("--{name}={}", decimal(value, "a number, as in 0.1")?),
    };
    match parse(&[&argument]) {
        Ok(_) => Ok(Some(argument)),
        Err(text) => Err(Mistake::new(value.span(), text)),
    }
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct CommandLine {
    #[command(flatten)]
    bundling: BundlingArgs,
}

/// What is wrong, it says in one line, and what is possible.
fn parse(arguments: &[&str]) -> Result<BundlingArgs, String> {
    let parsed = CommandLine::try_parse_from(arguments);
    parsed.map(|line| line.bundling).map_err(|error| {
        let text = error.to_string();
        let lines = text.lines().map(str::trim);
        let told: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let told = told.join("; ").replace("'--", "'");
        told.trim_start_matches("error: ").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_says_how_to_bundle_on_the_command_line_is_a_key() {
        let command = CommandLine::command();
        let options = command.get_arguments().filter_map(clap::Arg::get_long);
        let others = ["unsafe", "dev", "hook", "stats"];
        let mut options: Vec<_> = options.filter(|name| !others.contains(name)).collect();
        let mut keys: Vec<_> = names().collect();
        options.sort_unstable();
        keys.sort_unstable();
        assert_eq!(options, keys);
    }

    #[test]
    fn no_key_may_be_given_on_the_command_line_beside_the_file() {
        for name in names() {
            let option = name.replace('-', "_");
            assert!(crate::attach::IN_THE_FILE.contains(&&option[..]), "{name}");
        }
    }
}
