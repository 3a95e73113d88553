use std::time::Duration;

use pillion_lab::experiment::{Disturbance, Emulation, Jitter, Loss};
use toml::de::DeValue;

use super::keys::{self, parse_share};
use crate::times::parse_ms;
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Read, Value, keep, wrong};

const KEYS: [&str; 5] = ["jitter", "loss", "reorder", "duplicate", "back"];

/// Reads the table `path`: its own keys are those of the way to the receiver.
pub fn read(
    value: &Value,
    forward: &mut Emulation,
    backward: &mut Emulation,
    mistakes: &mut Vec<Mistake>,
) {
    let Some(table) = keep(keys::table(value), mistakes) else {
        return;
    };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "rtt" => {
                let rtt = keep(keys::milliseconds(value), mistakes).unwrap_or_default();
                (forward.delay, backward.delay) = (rtt / 2, rtt / 2);
            }
            "back" => {
                let Some(table) = keep(keys::table(value), mistakes) else {
                    continue;
                };
                for (key, value) in table {
                    if !set(backward, key.get_ref(), value, mistakes) {
                        mistakes.push(keys::unknown(key, &KEYS[..4]));
                    }
                }
            }
            name if set(forward, name, value, mistakes) => {}
            _ => {
                let known: Vec<_> = ["rtt"].into_iter().chain(KEYS).collect();
                mistakes.push(keys::unknown(key, &known));
            }
        }
    }
}

fn set(way: &mut Emulation, key: &str, value: &Value, mistakes: &mut Vec<Mistake>) -> bool {
    match key {
        "jitter" => {
            let sd = keep(keys::milliseconds(value), mistakes);
            let sd = sd.filter(|sd| !sd.is_zero());
            way.jitter = sd.map(|sd| Jitter { sd });
        }
        "loss" => way.loss = keep(loss(value), mistakes).flatten(),
        "reorder" => {
            let (reorder, late) = keep(reorder(value), mistakes).unwrap_or_default();
            let disturbance = way.disturbance.get_or_insert_default();
            (disturbance.reorder, disturbance.late) = (reorder, late);
        }
        "duplicate" => {
            let share = keep(keys::share(value), mistakes).unwrap_or_default();
            way.disturbance.get_or_insert_default().duplicate = share;
        }
        _ => return false,
    }
    way.disturbance = way
        .disturbance
        .filter(|other| *other != Disturbance::default());
    true
}

/// `2` per cent, `"gilbert-elliott:1:30:50:0"` in per cent, or a list of packets.
fn loss(value: &Value) -> Read<Option<Loss>> {
    let expected = "per cent, as in 2, or \"gilbert-elliott:TO_BAD:TO_GOOD[:IN_BAD[:IN_GOOD]]\" in \
                    per cent, or a list of packets, as in [10, 11]";
    match value.get_ref() {
        DeValue::String(text) => {
            let numbers = text.strip_prefix("gilbert-elliott:");
            let numbers = numbers.map(|text| text.split(':').map(parse_share));
            let numbers: Option<Vec<f64>> = numbers.and_then(Iterator::collect);
            let numbers = numbers.unwrap_or_default();
            let &[to_bad, to_good, ref rest @ ..] = &numbers[..] else {
                return Err(wrong(value, expected));
            };
            let (in_bad, in_good) = match rest {
                [] => (1.0, 0.0),
                [in_bad] => (*in_bad, 0.0),
                [in_bad, in_good] => (*in_bad, *in_good),
                _ => return Err(wrong(value, expected)),
            };
            Ok(Some(Loss::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            }))
        }
        DeValue::Array(packets) => {
            let number = |value| value::number(value, 1..=u32::MAX, "a packet's number, from 1");
            let packets = packets.iter().map(|value| number(value).map(u64::from));
            let mut packets = packets.collect::<Read<Vec<u64>>>()?;
            packets.sort_unstable();
            packets.dedup();
            Ok((!packets.is_empty()).then_some(Loss::Listed(packets)))
        }
        _ => {
            let share = keys::share(value).map_err(|_| wrong(value, expected))?;
            Ok((share > 0.0).then_some(Loss::Uniform(share)))
        }
    }
}

/// `"1:5"`: per cent, and by how many milliseconds.
fn reorder(value: &Value) -> Read<(f64, Duration)> {
    let expected = "per cent and milliseconds, as in \"1:5\"";
    let text = value::string(value, expected)?;
    let parsed = text.split_once(':').and_then(|(share, late)| {
        let late = parse_ms(late).ok().filter(|late| !late.is_zero())?;
        Some((parse_share(share)?, late))
    });
    parsed.ok_or_else(|| wrong(value, expected))
}
