use std::borrow::Cow;
use std::time::Duration;

use pillion_lab::experiment::{RoundTrips, SendingHost, Streams};
use pillion_traffic::Distribution;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{keys, mechanisms, options};
use crate::times::parse_ms;
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Read, Value, keep, wrong};
use crate::traffic::mix::group;

/// A group's keys beside those that describe its traffic.
const KEYS: [&str; 4] = ["host", "rtt", "mechanisms", "bundle"];

type Own<'a, 'i> = [Option<&'a Value<'i>>; KEYS.len()];

/// Reads the tables `group`, with the defaults; each brings a host of its own unless it names one.
pub fn read(
    document: &DeTable,
    hosts: &mut Vec<SendingHost>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Streams> {
    let nothing = DeTable::new();
    let defaults = document.get("defaults");
    let defaults = defaults.and_then(|value| keep(keys::table(value), mistakes));
    let (defaults_own, defaults) = part(defaults.unwrap_or(&nothing));
    let mut traffic = group::Given::new(&group::KEYS, &[]);
    traffic.read(&defaults, mistakes);
    let Some(groups) = document.get("group") else {
        let text = "no group of streams; begin one with [group.NAME]";
        mistakes.push(Mistake::new(0..1, text));
        return Vec::new();
    };
    let groups = keys::named(groups, "group", mistakes);
    let read = groups.into_iter().filter_map(|(name, value)| {
        let table = keep(keys::table(value), mistakes)?;
        let (own, mut rest) = part(table);
        if let Some((key, _)) = rest.remove_entry("name") {
            let text = format!(
                "a group's name is that of its table, here `{name}`; remove the key",
                name = name.get_ref()
            );
            mistakes.push(Mistake::new(key.span(), text));
        }
        let own: Own = std::array::from_fn(|key| own[key].or(defaults_own[key]));
        let rest = Spanned::new(value.span(), DeValue::Table(rest));
        let traffic = group::read(&rest, &traffic, &KEYS, mistakes).map(|(group, _)| group);
        let host = host(name, &own, hosts, mistakes);
        let [_, rtt, _, bundle] = own;
        let round_trips = rtt.and_then(|value| keep(round_trips(value), mistakes));
        let bundling = bundle.and_then(|value| bundling(value, mistakes));
        let traffic = pillion_traffic::Group {
            name: name.get_ref().to_string(),
            ..traffic?
        };
        Some(Streams {
            traffic,
            host: host?,
            round_trips,
            bundling,
        })
    });
    read.collect()
}

/// The values of [`KEYS`], and the table without them.
fn part<'a, 'i>(table: &'a DeTable<'i>) -> (Own<'a, 'i>, DeTable<'i>) {
    let mut rest = table.clone();
    let own = KEYS.map(|key| {
        rest.remove(key);
        table.get(key)
    });
    (own, rest)
}

/// The place of a group's host, which is made where the group has one to itself.
fn host(
    group: &Spanned<Cow<str>>,
    [host, _, mechanisms, _]: &Own,
    hosts: &mut Vec<SendingHost>,
    mistakes: &mut Vec<Mistake>,
) -> Option<usize> {
    let place = match host {
        Some(value) => {
            let name = keep(value::string(value, "the name of a host"), mistakes)?;
            let Some(place) = hosts.iter().position(|host| host.name == name) else {
                let text = format!("no host `{name}`; describe it in [host.{name}]");
                mistakes.push(Mistake::new(value.span(), text));
                return None;
            };
            place
        }
        None => {
            let name = group.get_ref();
            let known = hosts.iter().position(|host| host.name == **name);
            known.unwrap_or_else(|| {
                hosts.push(SendingHost {
                    name: name.to_string(),
                    ..SendingHost::default()
                });
                hosts.len() - 1
            })
        }
    };
    if let Some(value) = mechanisms {
        let before = hosts[place].sysctls.clone();
        let mut set = Default::default();
        mechanisms::read(value, &mut set, mistakes);
        let contradicts = |(name, value): &(&String, &String)| {
            before.get(*name).is_some_and(|other| other != *value)
        };
        if let Some((name, _)) = set.iter().find(contradicts) {
            let text = format!(
                "another group or the host itself sets {name} otherwise on host `{}`; give this \
                 group a host of its own",
                hosts[place].name
            );
            mistakes.push(Mistake::new(value.span(), text));
        }
        hosts[place].sysctls.extend(set);
    }
    Some(place)
}

/// `100`, `"100+5"`, or a distribution.
fn round_trips(value: &Value) -> Read<RoundTrips> {
    let expected = "milliseconds, as in 100, or \"100+5\" (5 more for each next stream), or a \
                    distribution, as in \"normal:200:50\"";
    let steps = |first: &str, step: &str| {
        let (first, step) = (parse_ms(first).ok()?, parse_ms(step).ok()?);
        Some(RoundTrips::Steps { first, step })
    };
    let text = match value.get_ref() {
        DeValue::String(text) => text,
        _ => value::decimal(value, expected)?,
    };
    let found = match text.split_once('+') {
        Some((first, step)) => steps(first, step),
        None => steps(text, "0").or_else(|| {
            let drawn = Distribution::parse(text.strip_prefix("normal:").unwrap_or(text)).ok()?;
            drawn.validate().ok()?;
            Some(RoundTrips::Drawn(drawn))
        }),
    };
    let longest = |round_trips: &RoundTrips| match round_trips {
        RoundTrips::Steps { first, step } => (*first).max(*step),
        RoundTrips::Drawn(_) => Duration::ZERO,
    };
    found
        .filter(|found| longest(found) <= Duration::from_secs(60))
        .ok_or_else(|| wrong(value, expected))
}

/// `true`, or a table of the options that rules of `attach --config` have.
fn bundling(
    value: &Value,
    mistakes: &mut Vec<Mistake>,
) -> Option<(pillion_bundler::Options, pillion_bundler::Companions)> {
    let mut given = options::none();
    match value.get_ref() {
        DeValue::Boolean(false) => return None,
        DeValue::Boolean(true) => {}
        DeValue::Table(table) => given.read(table, mistakes),
        _ => {
            let expected = "true, false, or how, as in { max-packets = 1 }";
            mistakes.push(wrong(value, expected));
            return None;
        }
    }
    keep(options::all(&given, value.span()), mistakes)
}
