use pillion_bundler::{Direction, Mode, Options, Rule};
use toml::de::DeValue;

use super::mistake::Mistake;
use super::options::{self, Given};
use super::value::{self, Read, Value};

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
    let mut rule = Rule::all(Options::default());
    let mut given = defaults.clone();
    let mut bundle = true;
    let mut how = Vec::new();
    for (key, value) in keys {
        match key.get_ref().as_ref() {
            "ports" => rule.ports = value::list(value, value::ports, mistakes),
            "local-ports" => rule.local_ports = value::list(value, value::ports, mistakes),
            "remote-ports" => rule.remote_ports = value::list(value, value::ports, mistakes),
            "peers" => rule.peers = value::list(value, value::peer, mistakes),
            "cgroup" => rule.cgroup = keep(value::cgroup(value), mistakes),
            "uid" => rule.uid = keep(value::uid(value), mistakes),
            "direction" => rule.direction = keep(value::word(value, &DIRECTIONS), mistakes),
            "mode" => bundle = keep(value::word(value, &MODES), mistakes).unwrap_or(true),
            name if given.set(name, value, mistakes) => how.push(key),
            unknown => {
                let known: Vec<_> = OWN_KEYS.into_iter().chain(options::names()).collect();
                let text = format!("unknown key `{unknown}`; known: {}", known.join(", "));
                mistakes.push(Mistake::new(key.span(), text));
            }
        }
    }
    if bundle {
        rule.mode = keep(given.options(table.span()), mistakes).map_or(rule.mode, Mode::Bundle);
        return Some(rule);
    }
    rule.mode = Mode::LeaveAlone;
    mistakes.extend(how.into_iter().map(|key| {
        let name = key.get_ref();
        let text = format!("`{name}` says how to bundle what is left alone; remove it");
        Mistake::new(key.span(), text)
    }));
    Some(rule)
}

const DIRECTIONS: [(&str, Direction); 2] = [
    ("connect", Direction::Connect),
    ("accept", Direction::Accept),
];

const MODES: [(&str, bool); 2] = [("bundle", true), ("leave-alone", false)];

fn keep<T>(result: Read<T>, mistakes: &mut Vec<Mistake>) -> Option<T> {
    result.map_err(|mistake| mistakes.push(mistake)).ok()
}
