//! One run, from the document that is its own.

use std::time::Duration;

use pillion_lab::experiment::{Bottleneck, Discipline, Emulation, Measure, Queue, Run, Shaper};
use toml::Spanned;
use toml::de::DeTable;

use super::{bottleneck, emulation, hosts, keys, measure, streams};
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, keep};
use crate::traffic::mix::length;

const KEYS: [&str; 13] = [
    "title",
    "duration",
    "seed",
    "repetitions",
    "bottleneck",
    "path",
    "sysctl",
    "measure",
    "host",
    "defaults",
    "group",
    "variant",
    "grid",
];

/// Reads it, and its title; none if it cannot be.
pub fn read(document: &DeTable, mistakes: &mut Vec<Mistake>) -> Option<(Run, Option<String>)> {
    let known = mistakes.len();
    let mut run = Run {
        duration: Duration::ZERO,
        seed: 1,
        bottleneck: Bottleneck {
            rate_bps: None,
            shaper: Shaper::Htb,
            burst_bytes: 1520,
            queue: Queue {
                discipline: Discipline::Pfifo,
                limit: None,
                options: Vec::new(),
            },
        },
        forward: Emulation::default(),
        backward: Emulation::default(),
        hosts: Vec::new(),
        streams: Vec::new(),
        sysctls: Default::default(),
        measure: Measure::default(),
    };
    let mut title = None;
    for (key, value) in document {
        match key.get_ref().as_ref() {
            "title" => title = keep(value::string(value, "a text"), mistakes).map(str::to_owned),
            "duration" => {
                run.duration = keep(length(value), mistakes).unwrap_or_default();
            }
            "seed" => {
                let seed = keep(value::unsigned(value), mistakes);
                run.seed = seed.map_or(1, u64::from);
            }
            "bottleneck" => bottleneck::read(value, &mut run.bottleneck, mistakes),
            "path" => emulation::read(value, &mut run.forward, &mut run.backward, mistakes),
            "sysctl" => run.sysctls = keys::sysctls(value, mistakes),
            "measure" => run.measure = measure::read(value, mistakes),
            "host" => run.hosts = hosts::read(value, mistakes),
            "defaults" | "group" => {}
            _ => mistakes.push(keys::unknown(key, &KEYS)),
        }
    }
    if !document.contains_key("duration") {
        let text = "no `duration`; say for how many seconds the streams send";
        mistakes.push(Mistake::new(0..1, text));
    }
    run.streams = streams::read(document, &mut run.hosts, mistakes);
    for streams in &run.streams {
        if mistakes.len() == known
            && let Err(error) = streams.traffic.validate(Some(run.duration), run.seed)
        {
            let place = place_of(document, &["group", &streams.traffic.name]);
            mistakes.push(Mistake::new(place, error.to_string()));
        }
    }
    if mistakes.len() > known {
        return None;
    }
    if let Err(error) = run.validate() {
        let place = place_of(document, &["bottleneck", error.key]);
        mistakes.push(Mistake::new(place, error.to_string()));
        return None;
    }
    Some((run, title))
}

/// Of the last key on this way that is there.
fn place_of(document: &DeTable, path: &[&str]) -> std::ops::Range<usize> {
    let mut place = 0..1;
    let mut table = Some(document);
    for key in path {
        let Some(value) = table.and_then(|table| table.get(*key)) else {
            break;
        };
        place = Spanned::span(value);
        table = value.get_ref().as_table();
    }
    place
}
