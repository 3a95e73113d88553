use std::borrow::Cow;

use pillion_bundler::{Companion, Direction, Mode, Options, Rule};
use toml::Spanned;
use toml::de::DeValue;

use super::condition;
use super::options::{self, Given};
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Read, Value, keep};

/// The keys besides those of options.
pub const OWN_KEYS: [&str; 8] = [
    "ports",
    "local-ports",
    "remote-ports",
    "peers",
    "cgroup",
    "uid",
    "direction",
    "mode",
];

/// Reads one rule; none if that is impossible.
pub fn read(table: &Value, defaults: &Given, mistakes: &mut Vec<Mistake>) -> Option<Rule> {
    let DeValue::Table(keys) = table.get_ref() else {
        let text = "no table; begin each rule with [[rule]]";
        mistakes.push(Mistake::new(table.span(), text));
        return None;
    };
    let known = mistakes.len();
    let mut rule = Rule::all(Options::default());
    let mut given = defaults.clone();
    let mut mode = Word::Bundle;
    let mut how = Vec::new();
    for (key, value) in keys {
        match key.get_ref().as_ref() {
            "ports" => rule.ports = value::list(value, condition::ports, mistakes),
            "local-ports" => rule.local_ports = value::list(value, condition::ports, mistakes),
            "remote-ports" => rule.remote_ports = value::list(value, condition::ports, mistakes),
            "peers" => rule.peers = value::list(value, condition::peer, mistakes),
            "cgroup" => rule.cgroup = keep(condition::cgroup(value), mistakes),
            "uid" => rule.uid = keep(condition::uid(value), mistakes),
            "direction" => rule.direction = keep(value::word(value, &DIRECTIONS), mistakes),
            "mode" => mode = keep(value::word(value, &MODES), mistakes).unwrap_or(mode),
            name if given.set(name, value, mistakes) => how.push(key),
            unknown => {
                let known: Vec<_> = OWN_KEYS.into_iter().chain(options::names()).collect();
                let text = format!("unknown key `{unknown}`; known: {}", known.join(", "));
                mistakes.push(Mistake::new(key.span(), text));
            }
        }
    }
    let companions = Companion::ALL.iter().map(|one| one.name());
    let companions: Vec<_> = companions.collect();
    let has_companions = |key: &&Spanned<Cow<str>>| companions.contains(&key.get_ref().as_ref());
    let (beside, bundling): (Vec<_>, Vec<_>) = how.into_iter().partition(has_companions);
    let mut surplus = |keys: Vec<&Spanned<Cow<str>>>, why: &str| {
        mistakes.extend(keys.into_iter().map(|key| {
            let text = format!("`{}` {why}; remove it", key.get_ref());
            Mistake::new(key.span(), text)
        }));
    };
    match mode {
        Word::Bundle | Word::Allow => {}
        Word::Companions => surplus(bundling, "says how to bundle what gets companions alone"),
        Word::LeaveAlone => {
            surplus(bundling, "says how to bundle what is left alone");
            surplus(beside, "is a companion of what is left alone");
            rule.mode = Mode::LeaveAlone;
            return Some(rule);
        }
    }
    let place = table.span();
    if let Some((options, set)) = keep(options::all(&given, place.clone()), mistakes) {
        rule.mode = match mode {
            Word::Allow => Mode::Allow(options),
            _ => Mode::Bundle(options),
        };
        rule.companions = set;
    }
    if mode == Word::Companions {
        rule.mode = Mode::Companions;
        if rule.companions.is_empty() && mistakes.len() == known {
            let text = format!("no companion; give one of {}", companions.join(", "));
            mistakes.push(Mistake::new(place, text));
        }
    }
    Some(rule)
}

/// Whether connections that no rule matches are left to their applications.
pub fn otherwise(value: &Value) -> Read<bool> {
    value::word(value, &[("allow", true), ("leave-alone", false)])
}

/// The values of `mode`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Bundle,
    Allow,
    Companions,
    LeaveAlone,
}

const DIRECTIONS: [(&str, Direction); 2] = [
    ("connect", Direction::Connect),
    ("accept", Direction::Accept),
];

const MODES: [(&str, Word); 4] = [
    ("bundle", Word::Bundle),
    ("allow", Word::Allow),
    ("companions", Word::Companions),
    ("leave-alone", Word::LeaveAlone),
];
