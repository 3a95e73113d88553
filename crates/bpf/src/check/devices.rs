use pillion_stats::names::escaped;

use super::{Finding, Standing};
use crate::netlink::{self, Qdisc};
use crate::{Device, Error, LinkHeader};

/// Queueing disciplines that limit a rate, by the length that a packet has before the hook.
/// (fq is not among them: it paces each connection, and a thin one is not held back.)
const SHAPERS: [&str; 6] = ["tbf", "htb", "hfsc", "cake", "cbq", "netem"];

/// Which devices there are, and a warning for each with a shaper that does not see bundles.
pub(super) fn findings() -> Vec<Finding> {
    let listed = Device::list().and_then(|devices| {
        let qdiscs = netlink::list_qdiscs(None);
        let qdiscs = qdiscs.map_err(|error| Error::system("list the queueing disciplines", error));
        Ok((devices, qdiscs?))
    });
    match listed {
        Ok((devices, qdiscs)) => {
            let mut findings = vec![kinds(&devices)];
            findings.extend(devices.iter().filter_map(|device| shaper(device, &qdiscs)));
            findings
        }
        Err(error) => vec![Finding::bad(
            "devices",
            Standing::Warning,
            error.to_string(),
            "look at them with `ip link` and `tc qdisc`",
        )],
    }
}

fn kinds(devices: &[Device]) -> Finding {
    let words: Vec<_> = devices
        .iter()
        .filter(|device| device.up && !device.loopback)
        .map(|device| format!("{device} ({})", kind(device)))
        .collect();
    if words.is_empty() {
        let remedy = "switch one on: ip link set NAME up (loopback: --dev lo)";
        return Finding::bad("devices", Standing::Warning, "none is up", remedy);
    }
    Finding::ok("devices", words.join(", "))
}

fn kind(device: &Device) -> &'static str {
    match device.link_header {
        Some(LinkHeader::Ethernet) => "Ethernet",
        Some(LinkHeader::Absent) => "IP, no link header",
        None => "unknown link header: left out",
    }
}

fn shaper(device: &Device, qdiscs: &[Qdisc]) -> Option<Finding> {
    let mut here = qdiscs.iter().filter(|qdisc| qdisc.device == device.index);
    let shaper = here
        .clone()
        .find(|qdisc| SHAPERS.iter().any(|shaper| qdisc.kind == *shaper))?;
    if here.any(|qdisc| qdisc.has_size_table) {
        return None;
    }
    let (name, kind) = (device, escaped(&shaper.kind));
    Some(Finding::bad(
        "shaper",
        Standing::Warning,
        format!("{kind} on {name} takes a packet's length before the bundle is in it"),
        format!(
            "make the root discipline anew, with a size table: tc qdisc replace dev {name} root \
             stab overhead 0 linklayer ethernet ..."
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;

    fn warns(kinds: &[(&str, bool)]) -> bool {
        let device = Device {
            name: "eth0".into(),
            other_names: Vec::new(),
            index: 2,
            link_header: Some(LinkHeader::Ethernet),
            up: true,
            loopback: false,
            is_port: false,
            namespace: Namespace::default(),
        };
        let qdiscs: Vec<_> = kinds
            .iter()
            .map(|(kind, has_size_table)| Qdisc {
                device: 2,
                kind: kind.into(),
                has_size_table: *has_size_table,
            })
            .collect();
        shaper(&device, &qdiscs).is_some()
    }

    #[test]
    fn a_shaper_without_a_size_table_is_warned_of() {
        assert!(warns(&[("tbf", false)]));
        assert!(warns(&[("mq", false), ("htb", false)]));
        assert!(!warns(&[("htb", true), ("pfifo", false)]));
        assert!(!warns(&[("fq_codel", false)]));
    }
}
