//! What is counted of the packets in each machine's devices and queues, and whether the counts agree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::QueueSeen;
use crate::Error;
use crate::capture::Captured;
use crate::path::Obtained;
use crate::settings::experiment::Plan;
use crate::testbed::{Emulator, IN, Node, OUT, QUEUE, Testbed};

// Counts of one and the same packets at several places, which must agree.

/// What became of the IP packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayCounts {
    /// Packets in the trace of the side that they come from; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_before: Option<u64>,
    /// Packets dropped by the bottleneck's queue.
    pub queue_dropped: u64,
    /// Packets that left the bottleneck; `None` in the direction back without a queue of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_passed: Option<u64>,
    /// What the queue probe saw; `None` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_seen: Option<QueueSeen>,
    /// Packets that the emulator took in; `None` where it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered: Option<u64>,
    /// Packets lost in the emulator.
    pub lost: u64,
    /// Of these, packets that it had no room to hold back: lost, though nobody asked for that.
    #[serde(default)]
    pub overflowed: u64,
    /// Copies of packets made in the emulator; `None` where it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubled: Option<u64>,
    /// Packets that left the emulator.
    pub delivered: u64,
    /// Packets in the trace of the side that they go to; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_behind: Option<u64>,
    /// How the emulator's delay varied; `None` without jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Obtained>,
}

/// The emulator's part of the counts, forward and backward.
fn emulated(plan: &Plan, testbed: &Testbed, listing: &Listing) -> [WayCounts; 2] {
    if let Some(ledger) = testbed.emulator.ledger() {
        return [ledger.forward, ledger.backward].map(|counts| WayCounts {
            entered: Some(counts.received.packets),
            lost: counts.lost.packets + counts.queue_full.packets + counts.device_refused.packets,
            overflowed: counts.queue_full.packets,
            doubled: Some(counts.duplicated.packets),
            delivered: counts.delivered.packets,
            jitter: counts.jitter,
            ..WayCounts::default()
        });
    }
    let [there, back] = testbed.emulator.dropped_as_listed();
    let ways = [
        (&plan.forward, "router", "receiver", there),
        (&plan.backward, "receiver", "router", back),
    ];
    ways.map(|(emulation, from, device, listed)| {
        // A second one behind the first holds packets back, and loses none.
        let first = |kind: &str, handle: &str| kind == "netem" && handle != Emulator::BEHIND;
        let passed = listing.passed("emulator", device, first);
        // netem does not count copies.
        let doubles = emulation.disturbance.is_some_and(|it| it.duplicate > 0.0);
        WayCounts {
            entered: listing.received("emulator", from),
            lost: passed.drops + listed,
            doubled: (!doubles).then_some(0),
            delivered: passed.packets,
            ..WayCounts::default()
        }
    })
}

/// The counts of both directions, with the traces at the senders and at the receiver.
pub(super) fn count(
    plan: &Plan,
    testbed: &Testbed,
    listing: &Listing,
    traces: Option<[Captured; 2]>,
    seen: [Option<QueueSeen>; 2],
) -> [WayCounts; 2] {
    let [mut forward, mut backward] = emulated(plan, testbed, listing);
    let [seen, seen_back] = seen;
    let queues = [
        (&mut forward, OUT, true, seen),
        (&mut backward, IN, plan.has_queue_back(), seen_back),
    ];
    for (way, device, is_there, seen) in queues {
        if is_there {
            let queue = listing.passed("router", device, |_, handle| handle == QUEUE);
            way.queue_dropped = queue.drops;
            way.queue_passed = Some(queue.packets);
            way.queue_seen = seen;
        }
    }
    if let Some([sender, receiver]) = traces {
        forward.trace_before = Some(sender.forward);
        forward.trace_behind = Some(receiver.forward);
        backward.trace_before = Some(receiver.backward);
        backward.trace_behind = Some(sender.backward);
    }
    [forward, backward]
}

impl WayCounts {
    /// The contradictions between the counts of this direction, in words. On their way to the
    /// receiver packets meet the queue first, on their way back the emulator.
    #[must_use]
    pub fn contradictions(&self, queue_is_first: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, one: Option<u64>, other: Option<u64>| {
            if let (Some(one), Some(other)) = (one, other)
                && one != other
            {
                found.push(format!("{what}: {one} and {other}"));
            }
        };
        let queued = self.queue_passed.map(|passed| passed + self.queue_dropped);
        match queue_is_first {
            true => compare(
                "packets traced and packets queued",
                self.trace_before,
                queued,
            ),
            false => compare(
                "packets delivered and packets queued",
                Some(self.delivered),
                queued,
            ),
        }
        let seen = self.queue_seen;
        let sent_seen = seen.map(|seen| seen.sent);
        compare(
            "packets that the queue passed and the probe saw",
            self.queue_passed,
            sent_seen,
        );
        let dropped_seen = seen.map(|seen| seen.dropped);
        let dropped = Some(self.queue_dropped);
        compare(
            "packets that the queue dropped and the probe saw",
            dropped,
            dropped_seen,
        );
        let unseen = seen.map(|seen| seen.unseen + seen.missed);
        compare("packets whose end the probe missed", Some(0), unseen);
        let passed = self.queue_passed.filter(|_| queue_is_first);
        let sent = passed.or(self.trace_before);
        compare("packets sent and packets emulated", sent, self.entered);
        compare(
            "packets that the emulator had no room to hold back",
            Some(0),
            Some(self.overflowed),
        );
        let accounted = self.delivered + self.lost;
        let come = self.entered.or(sent).zip(self.doubled);
        let come = come.map(|(entered, doubled)| entered + doubled);
        compare(
            "packets to account for and accounted for",
            come,
            Some(accounted),
        );
        let left = self.queue_passed.filter(|_| !queue_is_first);
        compare(
            "packets delivered and packets traced",
            left.or(Some(self.delivered)),
            self.trace_behind,
        );
        found
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_agree_are_silent_and_each_other_is_named() {
        let counts = WayCounts {
            trace_before: Some(100),
            queue_dropped: 10,
            queue_passed: Some(90),
            queue_seen: Some(QueueSeen {
                sent: 90,
                dropped: 10,
                ..QueueSeen::default()
            }),
            entered: Some(90),
            lost: 5,
            overflowed: 0,
            doubled: Some(1),
            delivered: 86,
            trace_behind: Some(86),
            jitter: None,
        };
        assert!(counts.contradictions(true).is_empty());
        let without_traces = WayCounts {
            trace_before: None,
            trace_behind: None,
            ..counts
        };
        assert!(without_traces.contradictions(true).is_empty());
        for (wrong, words) in [
            (
                WayCounts {
                    trace_before: Some(99),
                    ..counts
                },
                "traced and packets queued: 99 and 100",
            ),
            (
                WayCounts {
                    entered: Some(89),
                    ..counts
                },
                "sent and packets emulated: 90 and 89",
            ),
            (WayCounts { lost: 4, ..counts }, "accounted for: 91 and 90"),
            (
                WayCounts {
                    overflowed: 2,
                    ..counts
                },
                "no room to hold back: 0 and 2",
            ),
            (
                WayCounts {
                    trace_behind: Some(85),
                    ..counts
                },
                "delivered and packets traced: 86 and 85",
            ),
        ] {
            let found = wrong.contradictions(true).join("; ");
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn on_the_way_back_the_queue_is_behind_the_emulator() {
        let counts = WayCounts {
            trace_before: Some(100),
            entered: Some(100),
            lost: 5,
            doubled: Some(0),
            delivered: 95,
            queue_dropped: 10,
            queue_passed: Some(85),
            trace_behind: Some(85),
            ..WayCounts::default()
        };
        assert_eq!(counts.contradictions(false), [""; 0]);
        let wrong = WayCounts {
            queue_dropped: 9,
            ..counts
        };
        let found = wrong.contradictions(false).join("; ");
        assert!(
            found.contains("delivered and packets queued: 95 and 94"),
            "{found}"
        );
        assert!(!counts.contradictions(true).is_empty());
    }
}
