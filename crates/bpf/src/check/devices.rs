use pillion_stats::names::escaped;

use super::{CheckResult, Severity};
use crate::netlink::{self, Qdisc};
use crate::{Device, Error, LinkHeader};

/// Queueing disciplines that limit a rate by the packet length before the hook. (Not fq: it paces
/// each connection, and never delays a thin one.)
const SHAPERS: [&str; 6] = ["tbf", "htb", "hfsc", "cake", "cbq", "netem"];

/// Which devices there are, and a warning for each with a shaper that does not see bundles.
pub(super) fn results() -> Vec<CheckResult> {
    let listed = Device::list().and_then(|devices| {
        let qdiscs = netlink::list_qdiscs(None);
        let qdiscs = qdiscs.map_err(|error| Error::system("list the queueing disciplines", error));
        Ok((devices, qdiscs?))
    });
    match listed {
        Ok((devices, qdiscs)) => {
            let mut results = vec![kinds(&devices)];
            results.extend(devices.iter().filter_map(|device| shaper(device, &qdiscs)));
            results
        }
        Err(error) => vec![CheckResult::problem(
            "devices",
            Severity::Warning,
            error.to_string(),
            "look at them with `ip link` and `tc qdisc`",
        )],
    }
}

fn kinds(devices: &[Device]) -> CheckResult {
    let descriptions: Vec<_> = devices
        .iter()
        .filter(|device| device.up && !device.loopback)
        .map(|device| format!("{device} ({})", kind(device)))
        .collect();
    if descriptions.is_empty() {
        let remedy = "switch one on: ip link set NAME up (loopback: --dev lo)";
        return CheckResult::problem("devices", Severity::Warning, "no device is up", remedy);
    }
    CheckResult::ok("devices", descriptions.join(", "))
}

fn kind(device: &Device) -> &'static str {
    match device.link_header {
        Some(LinkHeader::Ethernet) => "Ethernet",
        Some(LinkHeader::Absent) => "IP, no link header",
        None => "unknown link header: ignored",
    }
}

fn shaper(device: &Device, qdiscs: &[Qdisc]) -> Option<CheckResult> {
    let mut here = qdiscs.iter().filter(|qdisc| qdisc.device == device.index);
    let shaper = here
        .clone()
        .find(|qdisc| SHAPERS.iter().any(|shaper| qdisc.kind == *shaper))?;
    if here.any(|qdisc| qdisc.has_size_table) {
        return None;
    }
    let (name, kind) = (device, escaped(&shaper.kind));
    Some(CheckResult::problem(
        "shaper",
        Severity::Warning,
        format!("{kind} on {name} counts a packet's length without its bundle"),
        format!(
            "replace the root discipline, with a size table: tc qdisc replace dev {name} root \
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
    fn shaper_without_size_table_warns() {
        assert!(warns(&[("tbf", false)]));
        assert!(warns(&[("mq", false), ("htb", false)]));
        assert!(!warns(&[("htb", true), ("pfifo", false)]));
        assert!(!warns(&[("fq_codel", false)]));
    }
}
