use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::testbed::{Node, Testbed};

/// The devices and queue disciplines of all machines, as `ip` and `tc` tell of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Listing(BTreeMap<String, Machine>);

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Machine {
    qdiscs: Value,
    links: Value,
}

/// Packets of a queue discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Packets that left the discipline.
    pub(super) packets: u64,
    /// Packets that the discipline dropped.
    pub(super) drops: u64,
}

impl Listing {
    pub(super) fn take(testbed: &Testbed) -> Result<Self, Error> {
        let machine = |node: &Node| {
            let machine = Machine {
                qdiscs: qdiscs(node)?,
                links: node.run_json("ip -s -j link show")?,
            };
            Ok((node.name.clone(), machine))
        };
        testbed
            .nodes()
            .map(machine)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// What the queue disciplines of a device that `wanted` takes have counted together.
    pub(super) fn passed(
        &self,
        machine: &str,
        device: &str,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Passed {
        let qdiscs = self.0.get(machine).map(|machine| entries(&machine.qdiscs));
        let word = |qdisc: &Value, name: &str| qdisc[name].as_str().unwrap_or_default().to_owned();
        let of_device = qdiscs.unwrap_or_default().iter().filter(|qdisc| {
            word(qdisc, "dev") == device && wanted(&word(qdisc, "kind"), &word(qdisc, "handle"))
        });
        of_device.fold(Passed::default(), |sum, qdisc| Passed {
            packets: sum.packets + number(qdisc, "packets"),
            drops: sum.drops + number(qdisc, "drops"),
        })
    }

    /// Packets that a device has received.
    pub(super) fn received(&self, machine: &str, device: &str) -> Option<u64> {
        let links = entries(&self.0.get(machine)?.links);
        let link = links.iter().find(|link| link["ifname"] == device)?;
        link["stats64"]["rx"]["packets"].as_u64()
    }
}

/// True if no packet waits in any queue discipline.
pub(super) fn is_at_rest(testbed: &Testbed) -> Result<bool, Error> {
    for node in testbed.nodes() {
        let qdiscs = qdiscs(node)?;
        if entries(&qdiscs).iter().any(|it| number(it, "qlen") > 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn qdiscs(node: &Node) -> Result<Value, Error> {
    node.run_json("tc -s -d -j qdisc show")
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(qdisc: &Value, name: &str) -> u64 {
    qdisc[name].as_u64().unwrap_or(0)
}
