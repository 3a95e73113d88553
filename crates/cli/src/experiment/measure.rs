use pillion_lab::experiment::Measure;
use toml::de::DeValue;

use super::keys;
use crate::toml_file::Mistake;
use crate::toml_file::value::{self, Value, keep};

const KEYS: [&str; 4] = ["traces", "sockets", "queue", "records"];

/// Reads the table `measure`.
pub fn read(value: &Value, mistakes: &mut Vec<Mistake>) -> Measure {
    let mut measure = Measure::default();
    let Some(table) = keep(keys::table(value), mistakes) else {
        return measure;
    };
    let is_off = |value: &Value| matches!(value.get_ref(), DeValue::Boolean(false));
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "traces" | "sockets" if matches!(value.get_ref(), DeValue::Boolean(true)) => {}
            "traces" if is_off(value) => measure.traces = None,
            "traces" => {
                let expected = "bytes kept of each packet, 64 to 65535, or false";
                measure.traces = keep(value::number(value, 64..=65_535, expected), mistakes);
            }
            "sockets" if is_off(value) => measure.sockets = None,
            "sockets" => {
                let every = keep(keys::milliseconds(value), mistakes);
                if every.is_some_and(|every| every.as_micros() < 1000) {
                    let expected = "milliseconds between samples, at least 1, or false";
                    mistakes.push(value::wrong(value, expected));
                }
                measure.sockets = every;
            }
            "queue" => measure.queue = keep(value::boolean(value), mistakes).unwrap_or(true),
            "records" => measure.records = keep(value::boolean(value), mistakes).unwrap_or(true),
            _ => mistakes.push(keys::unknown(key, &KEYS)),
        }
    }
    measure
}
