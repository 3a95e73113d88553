use std::collections::HashMap;
use std::net::SocketAddr;

use crate::sockets::Sample;
use pillion_bpf::{Counters, Flow, Outcome};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// What pillion knows of a connection at one moment. Its fields have the names that they have in
/// [`Flow`] as JSON; `segments` and `bundled` are sums of its outcomes.
pub(super) struct FlowSample<'a> {
    at_ns: u64,
    flow: &'a Flow,
}

impl<'a> FlowSample<'a> {
    /// Of the sampled connections that are bundled, in the samples' order. A connection whose
    /// application has not closed it yet is known to pillion even when it has ended.
    pub(super) fn of(
        samples: &'a [Sample],
        flows: &'a HashMap<[SocketAddr; 2], Flow>,
    ) -> impl Iterator<Item = Self> {
        samples.iter().filter_map(|sample| {
            let flow = flows.get(&[sample.local, sample.peer])?;
            let at_ns = sample.at_ns;
            Some(Self { at_ns, flow })
        })
    }
}

impl Serialize for FlowSample<'_> {
    // By hand, for CSV has no fields within fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Flow {
            local,
            peer,
            loss_rule,
            level,
            last,
            counters,
            decision,
            governor,
            ..
        } = self.flow;
        let mut fields = serializer.serialize_struct("FlowSample", 13 + Counters::NAMES.len())?;
        fields.serialize_field("at_ns", &self.at_ns)?;
        fields.serialize_field("local", local)?;
        fields.serialize_field("peer", peer)?;
        fields.serialize_field("loss_rule", loss_rule)?;
        fields.serialize_field("level", level)?;
        fields.serialize_field("last", last)?;
        fields.serialize_field("segments", &counters.segments())?;
        fields.serialize_field("bundled", &counters.of(Outcome::Bundled))?;
        for (name, value) in Counters::NAMES.iter().zip(counters.values()) {
            fields.serialize_field(name, &value)?;
        }
        let decision = decision.as_ref();
        fields.serialize_field("rate_allowed", &decision.map(|it| it.rate_allowed))?;
        fields.serialize_field("rate_sent", &decision.map(|it| it.rate_sent))?;
        let governor = governor.as_ref();
        fields.serialize_field("share", &governor.map(|it| it.share))?;
        fields.serialize_field("verdict", &governor.and_then(|it| it.verdict))?;
        fields.serialize_field("alarm", &governor.and_then(|it| it.alarm))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::{Companions, Decision, LossRule, WantedBy};

    use super::*;

    #[test]
    fn columns_are_fields_of_the_flow_as_json() {
        let flow = Flow {
            cookie: None,
            inode: None,
            closed_at: None,
            cgroup: None,
            srtt_us: None,
            data_packets: 0,
            retransmitted: 0,
            local: "10.77.1.1:20000".parse().unwrap(),
            peer: "10.77.2.1:7001".parse().unwrap(),
            netns: None,
            in_flight: 3,
            rtt_min_us: None,
            snd_cwnd: 10,
            mss: 1448,
            wanted_by: WantedBy::Rule,
            rule: None,
            off: false,
            loss_rule: LossRule::Dsack,
            level: 2,
            path_size: None,
            governor: None,
            ignores_cwr: false,
            companions: Companions::default(),
            companions_refused: Vec::new(),
            last: Some(Outcome::Bundled),
            counters: Counters {
                outcomes: [(Outcome::Bundled, 5), (Outcome::NotThin, 7)].into(),
                hidden_losses: 4,
                ..Counters::default()
            },
            decision: Some(Decision {
                rate_allowed: 9000,
                rate_sent: 4000,
            }),
        };
        let at_ns = 1;
        let row = serde_json::to_value(FlowSample { at_ns, flow: &flow }).unwrap();
        let json = serde_json::to_value(&flow).unwrap();
        assert_eq!((&row["segments"], &row["bundled"]), (&12.into(), &5.into()));
        let own = ["at_ns", "segments", "bundled", "share", "verdict", "alarm"];
        let fields = row.as_object().unwrap().iter();
        for (name, value) in fields.filter(|(name, _)| !own.contains(&name.as_str())) {
            assert_eq!(json.get(name), Some(value), "{name}");
        }
    }
}
