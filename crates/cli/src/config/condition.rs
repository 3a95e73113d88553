//! What the values of a rule's conditions must be.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use pillion_bundler::cgroup_id;
use toml::de::DeValue;

use crate::attach::parse_peer;
use crate::toml_file::Mistake;
use crate::toml_file::value::{Read, Value, number, string, wrong};

pub fn ports(value: &Value) -> Read<RangeInclusive<u16>> {
    let expected = "a port from 1 to 65535, or a range as in \"8000-8100\"";
    if let DeValue::Integer(_) = value.get_ref() {
        let port = number(value, 1..=u16::MAX.into(), expected)? as u16;
        return Ok(port..=port);
    }
    let text = string(value, expected)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(wrong(value, expected)),
    }
}

pub fn peer(value: &Value) -> Read<IpNet> {
    let text = string(value, "an address or a network, as in \"192.0.2.0/24\"")?;
    parse_peer(text).map_err(|expected| Mistake::new(value.span(), format!("`{text}`; {expected}")))
}

pub fn cgroup(value: &Value) -> Read<u64> {
    let path = string(
        value,
        "a cgroup's path, as in \"/system.slice/game.service\"",
    )?;
    cgroup_id(path).map_err(|error| {
        let remedy = "/proc/PID/cgroup names that of a process, on the line that begins with 0::";
        Mistake::new(value.span(), format!("{error}; {remedy}"))
    })
}

pub fn uid(value: &Value) -> Read<u32> {
    number(value, 0..=u32::MAX - 1, "a user's numeric id, as in 1000")
}
