use pillion_lab::experiment::SendingHost;

use super::{keys, mechanisms};
use crate::toml_file::Mistake;
use crate::toml_file::value::{Value, keep};

const KEYS: [&str; 4] = ["rate", "delay", "mechanisms", "sysctl"];

/// Reads the tables `host`.
pub fn read(value: &Value, mistakes: &mut Vec<Mistake>) -> Vec<SendingHost> {
    let named = keys::named(value, "host", mistakes);
    let hosts = named.into_iter().filter_map(|(name, value)| {
        let table = keep(keys::table(value), mistakes)?;
        let mut host = SendingHost {
            name: name.get_ref().to_string(),
            ..SendingHost::default()
        };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "rate" => host.rate_bps = keep(keys::rate(value), mistakes),
                "delay" => {
                    host.delay = keep(keys::milliseconds(value), mistakes).unwrap_or_default();
                }
                "mechanisms" => mechanisms::read(value, &mut host.sysctls, mistakes),
                "sysctl" => host.sysctls.extend(keys::sysctls(value, mistakes)),
                _ => mistakes.push(keys::unknown(key, &KEYS)),
            }
        }
        Some(host)
    });
    hosts.collect()
}
