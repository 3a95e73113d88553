use pillion_lab::experiment::{Bottleneck, Discipline, Limit, Shaper};
use toml::de::DeValue;

use super::keys;
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Read, Value, keep, wrong};

const KEYS: [&str; 6] = ["rate", "shaper", "burst", "queue", "limit", "options"];

/// Reads the table `bottleneck`.
pub fn read(value: &Value, bottleneck: &mut Bottleneck, mistakes: &mut Vec<Mistake>) {
    let Some(table) = keep(keys::table(value), mistakes) else {
        return;
    };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "rate" => bottleneck.rate_bps = keep(keys::rate(value), mistakes),
            "shaper" => {
                let words = [("htb", Shaper::Htb), ("tbf", Shaper::Tbf)];
                let shaper = keep(value::word(value, &words), mistakes);
                bottleneck.shaper = shaper.unwrap_or(bottleneck.shaper);
            }
            "burst" => {
                let expected = "bytes, 64 to 1000000000";
                let burst = value::number(value, 64..=1_000_000_000, expected);
                bottleneck.burst_bytes = keep(burst, mistakes).unwrap_or(bottleneck.burst_bytes);
            }
            "queue" => {
                let discipline = keep(value::word(value, &Discipline::ALL), mistakes);
                let queue = &mut bottleneck.queue;
                queue.discipline = discipline.unwrap_or(queue.discipline);
            }
            "limit" => bottleneck.queue.limit = keep(limit(value), mistakes),
            "options" => {
                let text = keep(value::string(value, "options of tc in quotes"), mistakes);
                let words = text.unwrap_or_default().split_whitespace();
                bottleneck.queue.options = words.map(str::to_owned).collect();
            }
            _ => mistakes.push(keys::unknown(key, &KEYS)),
        }
    }
}

/// `63` packets, `"46875 B"`, or `"0.5 BDP"`.
fn limit(value: &Value) -> Read<Limit> {
    let expected = "packets, as in 63, or \"46875 B\", or \"0.5 BDP\"";
    let number = 1..=u32::MAX;
    let DeValue::String(text) = value.get_ref() else {
        return value::number(value, number, expected).map(Limit::Packets);
    };
    let limit = match text.trim().split_once(' ') {
        Some((bytes, "B")) => bytes.parse().ok().map(Limit::Bytes),
        Some((products, "BDP")) => products.parse().ok().map(Limit::BandwidthDelayProducts),
        _ => None,
    };
    let is_sound = |limit: &Limit| match limit {
        Limit::Packets(count) | Limit::Bytes(count) => number.contains(count),
        Limit::BandwidthDelayProducts(products) => (0.001..=10_000.0).contains(products),
    };
    limit.filter(is_sound).ok_or_else(|| wrong(value, expected))
}
