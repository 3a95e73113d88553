//! Packet counts of devices, queues and traces, and the check that they agree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::QueueProbeCounts;
use crate::Error;
use crate::capture::CaptureCounts;
use crate::path::JitterStats;
use crate::settings::experiment::Plan;
use crate::testbed::{Emulator, IN, Node, OUT, QUEUE_HANDLE, Testbed};

// Counts of the same packets at several points, which have to agree.

/// The IP packets of one direction, counted at each point of their path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// Packets in the trace of the sending side; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_before: Option<u64>,
    /// Packets dropped by the bottleneck's queue, which is before the emulator toward the receiver,
    /// and after it on the way back, unless the link back is recorded.
    pub queue_dropped: u64,
    /// Packets that left the bottleneck; `None` for the way back without its own queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_passed: Option<u64>,
    /// Counts of the queue probe; `None` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_seen: Option<QueueProbeCounts>,
    /// Packets that entered the emulator; `None` if it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered: Option<u64>,
    /// Packets lost in the emulator.
    pub lost: u64,
    /// Lost packets for which the emulator had no space. The experiment did not request these
    /// losses.
    #[serde(default)]
    pub overflowed: u64,
    /// Packets that the emulator duplicated; `None` if it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubled: Option<u64>,
    /// Packets that left the emulator.
    pub delivered: u64,
    /// Packets in the trace of the receiving side; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_after: Option<u64>,
    /// Statistics of the emulator's delay; `None` without jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterStats>,
}

/// Returns the emulator's counts, forward and backward.
fn emulator_counts(
    plan: &Plan,
    testbed: &Testbed,
    device_listing: &DeviceListing,
) -> [PathCounts; 2] {
    if let Some(stats) = testbed.emulator.stats() {
        let [recorded, recorded_back] = plan.is_recorded();
        let directions = [(stats.forward, recorded), (stats.backward, recorded_back)];
        return directions.map(|(counts, is_recorded)| {
            let passed = counts.received.packets - counts.queue_full.packets;
            PathCounts {
                queue_dropped: counts.queue_full.packets,
                queue_passed: is_recorded.then_some(passed),
                entered: Some(passed),
                lost: counts.lost.packets
                    + counts.overflowed.packets
                    + counts.device_refused.packets,
                overflowed: counts.overflowed.packets,
                doubled: Some(counts.duplicated.packets),
                delivered: counts.delivered.packets,
                jitter: counts.jitter,
                ..PathCounts::default()
            }
        });
    }
    let [there, back] = testbed.emulator.listed_drops();
    let directions = [
        (&plan.forward, "router", "receiver", there),
        (&plan.backward, "receiver", "router", back),
    ];
    directions.map(|(emulation, from, device, listed)| {
        // A second netem after the first only delays packets, and loses none.
        let first =
            |kind: &str, handle: &str| kind == "netem" && handle != Emulator::REORDER_HANDLE;
        let qdisc_counts = device_listing.qdisc_counts("emulator", device, first);
        // netem does not count copies.
        let doubles = emulation.impairments.is_some_and(|it| it.duplicate > 0.0);
        PathCounts {
            entered: device_listing.received("emulator", from),
            lost: qdisc_counts.drops + listed,
            doubled: (!doubles).then_some(0),
            delivered: qdisc_counts.packets,
            ..PathCounts::default()
        }
    })
}

/// Returns the counts of both directions. `traces` are those at the senders and at the receiver.
pub(super) fn count(
    plan: &Plan,
    testbed: &Testbed,
    device_listing: &DeviceListing,
    traces: Option<[CaptureCounts; 2]>,
    probe_counts: [Option<QueueProbeCounts>; 2],
) -> [PathCounts; 2] {
    let [mut forward, mut backward] = emulator_counts(plan, testbed, device_listing);
    let [probe_counts, probe_counts_back] = probe_counts;
    forward.queue_seen = probe_counts;
    backward.queue_seen = probe_counts_back;
    let [recorded, recorded_back] = plan.is_recorded();
    let queues = [
        (&mut forward, OUT, !recorded),
        (&mut backward, IN, plan.has_queue_back() && !recorded_back),
    ];
    for (direction, device, is_of_kernel) in queues {
        if is_of_kernel {
            let queue =
                device_listing.qdisc_counts("router", device, |_, handle| handle == QUEUE_HANDLE);
            direction.queue_dropped = queue.drops;
            direction.queue_passed = Some(queue.packets);
        }
    }
    if let Some([sender, receiver]) = traces {
        forward.trace_before = Some(sender.forward);
        forward.trace_after = Some(receiver.forward);
        backward.trace_before = Some(receiver.backward);
        backward.trace_after = Some(sender.backward);
    }
    [forward, backward]
}

impl PathCounts {
    /// Describes counts that contradict each other. Packets toward the receiver pass the queue
    /// first, packets from it the emulator.
    #[must_use]
    pub fn contradictions(&self, queue_is_first: bool) -> Vec<String> {
        let mut contradictions = Vec::new();
        let mut compare = |what: &str, one: Option<u64>, other: Option<u64>| {
            if let (Some(one), Some(other)) = (one, other)
                && one != other
            {
                contradictions.push(format!("{what}: {one} and {other}"));
            }
        };
        let queued = self
            .queue_passed
            .map(|qdisc_counts| qdisc_counts + self.queue_dropped);
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
        let probe_counts = self.queue_seen;
        let probe_sent = probe_counts.map(|probe_counts| probe_counts.sent);
        compare(
            "packets that the queue passed and that the probe recorded",
            self.queue_passed,
            probe_sent,
        );
        let probe_dropped = probe_counts.map(|probe_counts| probe_counts.dropped);
        let dropped = Some(self.queue_dropped);
        compare(
            "packets that the queue dropped and that the probe recorded",
            dropped,
            probe_dropped,
        );
        let unseen = probe_counts.map(|probe_counts| probe_counts.unseen + probe_counts.missed);
        compare("packets that the probe missed", Some(0), unseen);
        let qdisc_counts = self.queue_passed.filter(|_| queue_is_first);
        let sent = qdisc_counts.or(self.trace_before);
        compare("packets sent and packets emulated", sent, self.entered);
        compare(
            "packets that overflowed the emulator's queue",
            Some(0),
            Some(self.overflowed),
        );
        let accounted = self.delivered + self.lost;
        let expected = self.entered.or(sent).zip(self.doubled);
        let expected = expected.map(|(entered, doubled)| entered + doubled);
        compare(
            "packets expected and packets delivered or lost",
            expected,
            Some(accounted),
        );
        let after_queue = self.queue_passed.filter(|_| !queue_is_first);
        compare(
            "packets delivered and packets traced",
            after_queue.or(Some(self.delivered)),
            self.trace_after,
        );
        contradictions
    }
}

/// The devices and queue disciplines of all machines, as printed by `ip` and `tc`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DeviceListing(BTreeMap<String, Machine>);

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Machine {
    qdiscs: Value,
    links: Value,
}

/// Packet counts of a queue discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QdiscCounts {
    /// Packets that left the discipline.
    pub(super) packets: u64,
    /// Packets that the discipline dropped.
    pub(super) drops: u64,
}

impl DeviceListing {
    pub(super) fn read(testbed: &Testbed) -> Result<Self, Error> {
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

    /// Sums the counts of a device's queue disciplines that match `filter`, a function of kind and
    /// handle.
    pub(super) fn qdisc_counts(
        &self,
        machine: &str,
        device: &str,
        filter: impl Fn(&str, &str) -> bool,
    ) -> QdiscCounts {
        let qdiscs = self.0.get(machine).map(|machine| entries(&machine.qdiscs));
        let word = |qdisc: &Value, name: &str| qdisc[name].as_str().unwrap_or_default().to_owned();
        let of_device = qdiscs.unwrap_or_default().iter().filter(|qdisc| {
            word(qdisc, "dev") == device && filter(&word(qdisc, "kind"), &word(qdisc, "handle"))
        });
        of_device.fold(QdiscCounts::default(), |sum, qdisc| QdiscCounts {
            packets: sum.packets + number(qdisc, "packets"),
            drops: sum.drops + number(qdisc, "drops"),
        })
    }

    /// Returns the number of packets that a device received.
    pub(super) fn received(&self, machine: &str, device: &str) -> Option<u64> {
        let links = entries(&self.0.get(machine)?.links);
        let link = links.iter().find(|link| link["ifname"] == device)?;
        link["stats64"]["rx"]["packets"].as_u64()
    }
}

/// Whether all queue disciplines are empty.
pub(super) fn is_idle(testbed: &Testbed) -> Result<bool, Error> {
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
    fn only_differing_counts_are_contradictions() {
        let counts = PathCounts {
            trace_before: Some(100),
            queue_dropped: 10,
            queue_passed: Some(90),
            queue_seen: Some(QueueProbeCounts {
                sent: 90,
                dropped: 10,
                ..QueueProbeCounts::default()
            }),
            entered: Some(90),
            lost: 5,
            overflowed: 0,
            doubled: Some(1),
            delivered: 86,
            trace_after: Some(86),
            jitter: None,
        };
        assert!(counts.contradictions(true).is_empty());
        let without_traces = PathCounts {
            trace_before: None,
            trace_after: None,
            ..counts
        };
        assert!(without_traces.contradictions(true).is_empty());
        for (wrong, words) in [
            (
                PathCounts {
                    trace_before: Some(99),
                    ..counts
                },
                "traced and packets queued: 99 and 100",
            ),
            (
                PathCounts {
                    entered: Some(89),
                    ..counts
                },
                "sent and packets emulated: 90 and 89",
            ),
            (
                PathCounts { lost: 4, ..counts },
                "delivered or lost: 91 and 90",
            ),
            (
                PathCounts {
                    overflowed: 2,
                    ..counts
                },
                "overflowed the emulator's queue: 0 and 2",
            ),
            (
                PathCounts {
                    trace_after: Some(85),
                    ..counts
                },
                "delivered and packets traced: 86 and 85",
            ),
        ] {
            let contradictions = wrong.contradictions(true).join("; ");
            assert!(contradictions.contains(words), "{contradictions}");
        }
    }

    #[test]
    fn return_path_has_queue_after_emulator() {
        let counts = PathCounts {
            trace_before: Some(100),
            entered: Some(100),
            lost: 5,
            doubled: Some(0),
            delivered: 95,
            queue_dropped: 10,
            queue_passed: Some(85),
            trace_after: Some(85),
            ..PathCounts::default()
        };
        assert_eq!(counts.contradictions(false), [""; 0]);
        let wrong = PathCounts {
            queue_dropped: 9,
            ..counts
        };
        let contradictions = wrong.contradictions(false).join("; ");
        assert!(
            contradictions.contains("delivered and packets queued: 95 and 94"),
            "{contradictions}"
        );
        assert!(!counts.contradictions(true).is_empty());
    }
}
