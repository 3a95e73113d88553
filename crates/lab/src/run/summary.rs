use std::net::{IpAddr, SocketAddr};

use crate::analysis::runs::Totals;
use crate::settings::experiment::Plan;
use crate::traffic::{Kind, Quantiles, ReceiveReport, Received, SendReport, Sent, Traffic};
use pillion_stats::report::number;
use serde::{Deserialize, Serialize};

use super::counts::WayCounts;
use crate::capture::Captured;

/// What came of a run, in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What came of each group, in the experiment's order.
    pub groups: Vec<GroupSummary>,
    /// Counts of the packets to the receiver.
    pub forward: WayCounts,
    /// Counts of the packets from the receiver.
    pub backward: WayCounts,
    /// What the traces at the senders and at the receiver hold; `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces: Option<[Captured; 2]>,
    /// What casts doubt on the run: counts that contradict each other, packets missing from a
    /// trace, messages that never came.
    pub doubts: Vec<String>,
}

/// What came of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// The group's name.
    pub name: String,
    /// The kind of the group's streams.
    pub kind: String,
    /// The host that the group's streams come from.
    pub host: String,
    /// The number of the group's streams.
    pub streams: usize,
    /// Streams that connected.
    pub connected: usize,
    /// Streams that did not end with the receiver's close after all was sent.
    pub failed: usize,
    /// Messages that TCP took.
    pub sent: u64,
    /// Messages that came, every byte verified.
    pub received: u64,
    /// Segments that TCP retransmitted; `None` where that is not known.
    pub retransmissions: Option<u64>,
    /// Delivery latency in microseconds, from one application's write to the other one's read.
    pub delivery_us: Option<Quantiles>,
}

/// What sender and receiver report of a group and of its streams.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GroupTraffic<'a> {
    name: &'a str,
    host: &'a str,
    /// The senders' address, and the port of the first stream; each next stream has the next.
    from: SocketAddr,
    to: SocketAddr,
    first_stream: u32,
    sent: &'a SendReport,
    received: &'a ReceiveReport,
}

impl<'a> GroupTraffic<'a> {
    pub(super) fn new(
        host: &'a str,
        address: IpAddr,
        traffic: &'a Traffic,
        (sent, received): &'a (Sent, Received),
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
    /// That nothing was sent, or what never came, if it is so much that latencies are not those of all
    /// messages; those of which some are to get lost tell nothing by that.
    fn doubt(&self, is_lossy: bool) -> Option<String> {
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
        let survivors = totals.survivors().filter(|_| totals.is_much_missing());
        Some(format!("group {}: {}", self.name, survivors?))
    }
}

impl Summary {
    pub(super) fn new(
        plan: &Plan,
        ended: &[(Sent, Received)],
        [forward, backward]: [WayCounts; 2],
        traces: Option<[Captured; 2]>,
    ) -> Self {
        let groups = plan
            .streams
            .iter()
            .zip(ended)
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
        let mut doubts = Vec::new();
        for (name, way, queue_is_first) in [
            ("to the receiver", &forward, true),
            ("from the receiver", &backward, false),
        ] {
            let found = way.contradictions(queue_is_first).into_iter();
            doubts.extend(found.map(|contradiction| format!("{name}: {contradiction}")));
        }
        for (place, trace) in ["sender's", "receiver's"]
            .iter()
            .zip(traces.iter().flatten())
        {
            if trace.missed > 0 {
                doubts.push(format!(
                    "{} packets miss in the {place} trace",
                    trace.missed
                ));
            }
        }
        let corrupt: usize = ended.iter().map(|(_, it)| it.report.corrupt).sum();
        if corrupt > 0 {
            let corrupt = number::counted(corrupt as u64, "stream");
            doubts.push(format!("{corrupt} carried a wrong byte"));
        }
        let groups: Vec<_> = groups.collect();
        for (streams, group) in plan.streams.iter().zip(&groups) {
            let is_lossy = matches!(streams.traffic.kind, Kind::Datagrams { .. });
            doubts.extend(group.doubt(is_lossy));
        }
        Self {
            groups,
            forward,
            backward,
            traces,
            doubts,
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
    fn a_group_of_which_much_never_came_is_in_doubt() {
        assert_eq!(group(6000, 0).doubt(false), None);
        assert_eq!(group(2726, 0).doubt(true), None);
        assert!(group(6000, 24).doubt(false).is_some());
        assert!(group(2726, 0).doubt(false).is_some());
        let doubt = group(2726, 24).doubt(false).unwrap().replace('\u{a0}', " ");
        let told = "group thin: 2 726 of 6 000 messages received, 24 of 30 streams failed;";
        assert!(doubt.starts_with(told), "{doubt}");
    }

    #[test]
    fn a_group_that_sent_nothing_is_in_doubt() {
        let silent = GroupSummary {
            sent: 0,
            ..group(0, 0)
        };
        assert_eq!(silent.doubt(false).unwrap(), "group thin: sent nothing");
        let none = GroupSummary {
            streams: 0,
            ..silent
        };
        assert_eq!(none.doubt(false), None, "flows that would start at the end");
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
    fn a_run_is_in_doubt_where_a_group_of_it_is() {
        let plan = crate::testbed::tests::plan();
        let doubts = |arrived| {
            let ended = plan.streams.iter().map(|_| {
                let sent = Sent {
                    report: sent(100),
                    records: Vec::new(),
                };
                let received = Received {
                    report: received(arrived),
                    records: Vec::new(),
                };
                (sent, received)
            });
            let ended: Vec<_> = ended.collect();
            Summary::new(&plan, &ended, [WayCounts::default(); 2], None).doubts
        };
        assert_eq!(doubts(100), [""; 0]);
        let found = doubts(90);
        assert_eq!(found.len(), plan.streams.len(), "{found:?}");
        assert!(
            found[0].contains("90 of 100 messages received"),
            "{found:?}"
        );
    }
}
