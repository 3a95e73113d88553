use std::net::{IpAddr, SocketAddr};

use crate::analysis::runs::Totals;
use crate::settings::experiment::Plan;
use crate::traffic::{
    Kind, Quantiles, ReceiveReport, ReceiveResult, SendReport, SendResult, Traffic,
};
use pillion_stats::report::number;
use serde::{Deserialize, Serialize};

use super::counts::PathCounts;
use crate::capture::CaptureCounts;

/// The summary of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// One summary per group, in the experiment's order.
    pub groups: Vec<GroupSummary>,
    /// Counts of packets to the receiver.
    pub forward: PathCounts,
    /// Counts of packets from the receiver.
    pub backward: PathCounts,
    /// Counts of the traces at the senders and at the receiver; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces: Option<[CaptureCounts; 2]>,
    /// Reasons to distrust the run: contradictory counts, packets missing in a trace, missing
    /// messages.
    pub warnings: Vec<String>,
}

/// The summary of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// The group's name.
    pub name: String,
    /// The kind of the group's streams.
    pub kind: String,
    /// The host that sends the group's streams.
    pub host: String,
    /// The number of streams.
    pub streams: usize,
    /// Streams that connected.
    pub connected: usize,
    /// Streams that did not end with the receiver's close after all data was sent.
    pub failed: usize,
    /// Messages that TCP accepted.
    pub sent: u64,
    /// Messages that arrived, with every byte verified.
    pub received: u64,
    /// Segments that TCP retransmitted; `None` if unknown.
    pub retransmissions: Option<u64>,
    /// Delivery latency in microseconds, from one application's write to the other one's read.
    pub delivery_us: Option<Quantiles>,
}

/// The reports of sender and receiver about a group and its streams.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GroupReport<'a> {
    name: &'a str,
    host: &'a str,
    /// The senders' address, and the port of the first stream; the following streams have the
    /// following ports.
    from: SocketAddr,
    to: SocketAddr,
    first_stream: u32,
    sent: &'a SendReport,
    received: &'a ReceiveReport,
}

impl<'a> GroupReport<'a> {
    pub(super) fn new(
        host: &'a str,
        address: IpAddr,
        traffic: &'a Traffic,
        (sent, received): &'a (SendResult, ReceiveResult),
    ) -> Self {
        Self {
            name: traffic.groups.first().map_or("", |group| &group.name),
            host,
            from: SocketAddr::new(address, traffic.source_port.unwrap_or(0)),
            to: traffic.to,
            first_stream: traffic.first_stream,
            sent: &sent.report,
            received: &received.report,
        }
    }
}

impl GroupSummary {
    /// Returns a warning if the group sent nothing, or if too many messages are missing for valid
    /// percentiles. Missing messages of `is_lossy` streams are expected.
    fn missing_warning(&self, is_lossy: bool) -> Option<String> {
        if self.sent == 0 && self.streams > 0 {
            return Some(format!("group {}: sent nothing", self.name));
        }
        let totals = Totals {
            streams: self.streams as u64,
            failed_streams: self.failed as u64,
            sent_messages: if is_lossy { self.received } else { self.sent },
            received_messages: self.received,
            ..Totals::default()
        };
        let missing_note = totals
            .missing_note()
            .filter(|_| totals.exceeds_missing_limit());
        Some(format!("group {}: {}", self.name, missing_note?))
    }
}

impl Summary {
    pub(super) fn new(
        plan: &Plan,
        results: &[(SendResult, ReceiveResult)],
        [forward, backward]: [PathCounts; 2],
        traces: Option<[CaptureCounts; 2]>,
    ) -> Self {
        let groups = plan
            .streams
            .iter()
            .zip(results)
            .map(|(streams, (sent, received))| {
                let group = &sent.report;
                GroupSummary {
                    name: streams.traffic.name.clone(),
                    kind: streams.traffic.kind.name().to_owned(),
                    host: plan
                        .hosts
                        .get(streams.host)
                        .map_or_else(String::new, |host| host.name.clone()),
                    streams: group.streams.len(),
                    connected: group.streams.iter().filter(|it| it.connected).count(),
                    failed: group.failed,
                    sent: group.messages,
                    received: received.report.messages,
                    retransmissions: group.retransmissions,
                    delivery_us: received.report.latency_us,
                }
            });
        let mut warnings = Vec::new();
        for (name, direction, queue_is_first) in [
            ("to the receiver", &forward, true),
            ("from the receiver", &backward, plan.is_recorded()[1]),
        ] {
            let contradictions = direction.contradictions(queue_is_first).into_iter();
            warnings.extend(contradictions.map(|contradiction| format!("{name}: {contradiction}")));
        }
        for (side, trace) in ["sender's", "receiver's"]
            .iter()
            .zip(traces.iter().flatten())
        {
            if trace.missed > 0 {
                warnings.push(format!(
                    "{} packets are missing in the {side} trace",
                    trace.missed
                ));
            }
        }
        let corrupt: usize = results.iter().map(|(_, it)| it.report.corrupt).sum();
        if corrupt > 0 {
            let corrupt = number::counted(corrupt as u64, "stream");
            warnings.push(format!("{corrupt} carried a wrong byte"));
        }
        let groups: Vec<_> = groups.collect();
        for (streams, group) in plan.streams.iter().zip(&groups) {
            let is_lossy = matches!(streams.traffic.kind, Kind::Datagrams { .. });
            warnings.extend(group.missing_warning(is_lossy));
        }
        Self {
            groups,
            forward,
            backward,
            traces,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::traffic::SendLateness;

    use super::*;

    fn group(received: u64, failed: usize) -> GroupSummary {
        GroupSummary {
            name: "thin".to_owned(),
            kind: "thin".to_owned(),
            host: "thin".to_owned(),
            streams: 30,
            connected: 30,
            failed,
            sent: 6000,
            received,
            retransmissions: Some(0),
            delivery_us: None,
        }
    }

    #[test]
    fn many_missing_messages_cause_a_warning() {
        assert_eq!(group(6000, 0).missing_warning(false), None);
        assert_eq!(group(2726, 0).missing_warning(true), None);
        assert!(group(6000, 24).missing_warning(false).is_some());
        assert!(group(2726, 0).missing_warning(false).is_some());
        let missing_warning = group(2726, 24)
            .missing_warning(false)
            .unwrap()
            .replace('\u{a0}', " ");
        let expected = "group thin: 2 726 of 6 000 messages received, 24 of 30 streams failed;";
        assert!(missing_warning.starts_with(expected), "{missing_warning}");
    }

    #[test]
    fn silent_group_causes_a_warning() {
        let silent = GroupSummary {
            sent: 0,
            ..group(0, 0)
        };
        assert_eq!(
            silent.missing_warning(false).unwrap(),
            "group thin: sent nothing"
        );
        let empty = GroupSummary {
            streams: 0,
            ..silent
        };
        assert_eq!(
            empty.missing_warning(false),
            None,
            "flows that would start at the end"
        );
    }

    fn sent(messages: u64) -> SendReport {
        SendReport {
            messages,
            bytes: 0,
            blocked_writes: 0,
            send_error_us: SendLateness {
                p50: 0.0,
                p99: 0.0,
                max: 0.0,
            },
            answers: 0,
            round_trip_us: None,
            retransmissions: None,
            bytes_retrans: None,
            segs_out: None,
            failed: 0,
            groups: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn received(messages: u64) -> ReceiveReport {
        ReceiveReport {
            connections: 0,
            messages,
            bytes: 0,
            corrupt: 0,
            incomplete: 0,
            broken: 0,
            latency_us: None,
            streams: Vec::new(),
        }
    }

    #[test]
    fn warning_of_group_is_warning_of_run() {
        let plan = crate::testbed::tests::plan();
        let warnings = |arrived| {
            let results = plan.streams.iter().map(|_| {
                let sent = SendResult {
                    report: sent(100),
                    records: Vec::new(),
                };
                let received = ReceiveResult {
                    report: received(arrived),
                    records: Vec::new(),
                };
                (sent, received)
            });
            let results: Vec<_> = results.collect();
            Summary::new(&plan, &results, [PathCounts::default(); 2], None).warnings
        };
        assert_eq!(warnings(100), [""; 0]);
        let contradictions = warnings(90);
        assert_eq!(
            contradictions.len(),
            plan.streams.len(),
            "{contradictions:?}"
        );
        assert!(
            contradictions[0].contains("90 of 100 messages received"),
            "{contradictions:?}"
        );
    }
}
