use std::ops::Range;
use std::time::Duration;

use clap::ValueEnum;
use pillion_traffic::Group;
use toml::Spanned;
use toml::de::DeValue;

use crate::times::parse_s;
use crate::toml_file::value::{self, Read, Value, keep};
use crate::toml_file::{self, Form, Mistake};
use crate::traffic::group::GroupArgs;
use crate::traffic::kind::{KindName, uses};

/// The keys that are options of the command line.
pub const KEYS: [(&str, Form); 14] = [
    ("streams", Form::Number),
    ("kind", Form::Text),
    ("profile", Form::Text),
    ("itt", Form::TextOrDecimal),
    ("size", Form::TextOrDecimal),
    ("think", Form::TextOrDecimal),
    ("answer", Form::Number),
    ("messages", Form::Number),
    ("ramp-up", Form::TextOrDecimal),
    ("nagle", Form::Flag),
    ("linear-timeouts", Form::Flag),
    ("congestion", Form::Text),
    ("pillion", Form::Text),
    ("max-packets", Form::Number),
];

/// A group's keys besides.
pub const OWN_KEYS: [&str; 3] = ["name", "start", "duration"];

/// Those that a profile takes the place of.
const OF_THE_KIND: [&str; 5] = ["kind", "itt", "size", "think", "answer"];

pub type Given = toml_file::Given<GroupArgs>;

/// Where what is said of a group stands.
pub struct Places {
    table: Range<usize>,
    own: [(&'static str, Option<Range<usize>>); 3],
    given: Given,
}

impl Places {
    /// Of a key's value, or of the group if it has none.
    pub fn of(&self, key: &str) -> Range<usize> {
        let own = self.own.iter().find(|(name, _)| *name == key);
        let own = own.and_then(|(_, place)| place.clone());
        own.or_else(|| self.given.place(key))
            .unwrap_or(self.table.clone())
    }
}

/// Reads one group, and where its keys stand; none if what it is cannot be known. Of an unknown
/// key it is said that `others` are known, too.
pub fn read(
    table: &Value,
    defaults: &Given,
    others: &[&str],
    mistakes: &mut Vec<Mistake>,
) -> Option<(Group, Places)> {
    let DeValue::Table(keys) = table.get_ref() else {
        let text = "no table; begin each group with [[group]]";
        mistakes.push(Mistake::new(table.span(), text));
        return None;
    };
    let known = mistakes.len();
    let mut own = Given::new(&KEYS, &[]);
    let (mut name, mut start, mut duration) = (None, None, None);
    for (key, value) in keys {
        match key.get_ref().as_ref() {
            "name" => name = keep(value::string(value, "a name in quotes"), mistakes),
            "start" => start = keep(seconds(value), mistakes),
            "duration" => duration = keep(length(value), mistakes),
            name if own.set(name, value, mistakes) => {}
            unknown => {
                let options = KEYS.into_iter().map(|(name, _)| name);
                let others = others.iter().copied();
                let known: Vec<_> = OWN_KEYS.into_iter().chain(options).chain(others).collect();
                let text = format!("unknown key `{unknown}`; known: {}", known.join(", "));
                mistakes.push(Mistake::new(key.span(), text));
            }
        }
    }
    let given = with_defaults(own, defaults);
    let own = OWN_KEYS.map(|name| (name, keys.get(name).map(Spanned::span)));
    let places = Places {
        table: table.span(),
        own,
        given,
    };
    let given = &places.given;
    // What follows from a mistake is none.
    let is_missing = |key: &&str| keys.contains_key(*key) && given.place(key).is_none();
    if ["kind", "profile"].iter().any(is_missing) {
        return None;
    }
    let parsed = given
        .parse()
        .map_err(|text| Mistake::new(table.span(), text));
    let group = match keep(parsed, mistakes)?.group() {
        Ok(group) => group,
        Err(wrong) => {
            let wrong = wrong.into_iter();
            mistakes.extend(wrong.map(|wrong| Mistake::new(places.of(wrong.option), wrong.text)));
            return None;
        }
    };
    if mistakes.len() > known {
        return None;
    }
    let group = Group {
        name: name.map_or(group.name.clone(), str::to_owned),
        start: start.unwrap_or_default(),
        duration,
        ..group
    };
    Some((group, places))
}

/// A group's own keys, and the defaults that say something of such a group.
fn with_defaults(own: Given, defaults: &Given) -> Given {
    let is_own = |key: &str| own.place(key).is_some();
    let (of_a_kind, profile) = (OF_THE_KIND.into_iter().any(is_own), is_own("profile"));
    let kind = own.text("kind").or(defaults.text("kind"));
    let kind = kind.and_then(|name| KindName::from_str(name, false).ok());
    let kind = kind.unwrap_or(KindName::Thin);
    let fits = |key: &str| match key {
        "profile" => !of_a_kind,
        _ if OF_THE_KIND.contains(&key) => !profile && uses(kind, key),
        _ => true,
    };
    own.or(defaults, fits)
}

fn seconds(value: &Value) -> Read<Duration> {
    let expected = "seconds, as in 0.5";
    let text = value::decimal(value, expected)?;
    parse_s(text).map_err(|_| value::wrong(value, expected))
}

/// How long something lasts.
pub fn length(value: &Value) -> Read<Duration> {
    let seconds = seconds(value)?;
    match seconds.is_zero() {
        true => Err(value::wrong(value, "seconds above 0, as in 0.5")),
        false => Ok(seconds),
    }
}
