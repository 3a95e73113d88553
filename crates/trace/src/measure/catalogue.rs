//! Each distribution of [`Measures`], once: JSON, tables, summaries, reports and the documentation
//! take name, unit and meaning from here.

use pillion_stats::measure::{Distribution, Measure, Unit};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::measures::Measures;
use super::measures::Summary;

/// A distribution among [`Measures`]; times are in nanoseconds there.
pub type Distributed = Measure<fn(&Measures) -> &Distribution>;

/// ACK latency (LCN 2015, section IV.A; the thesis' ALD, section 3.4.3).
pub const ACK_LATENCY: Distributed = Measure {
    name: "ack_latency_ms",
    label: "ACK latency",
    unit: Unit::Milliseconds,
    meaning: "from the first time that a byte range was sent to the ACK that covers it; one value \
              for each range",
    of: |measures| &measures.latency.ack_latency,
};

/// ACK latency of what was retransmitted once (2013 poster, figure 2).
pub const ACK_LATENCY_RETRANSMITTED_ONCE: Distributed = Measure {
    name: "ack_latency_retransmitted_once_ms",
    label: "ACK latency, retransmitted once",
    unit: Unit::Milliseconds,
    meaning: "ACK latency of byte ranges that were retransmitted once",
    of: |measures| &measures.latency.ack_latency_retransmitted[0],
};

/// ACK latency of what was retransmitted twice.
pub const ACK_LATENCY_RETRANSMITTED_TWICE: Distributed = Measure {
    name: "ack_latency_retransmitted_twice_ms",
    label: "ACK latency, retransmitted twice",
    unit: Unit::Milliseconds,
    meaning: "of those that were retransmitted twice",
    of: |measures| &measures.latency.ack_latency_retransmitted[1],
};

/// ACK latency of what was retransmitted three times.
pub const ACK_LATENCY_RETRANSMITTED_THRICE: Distributed = Measure {
    name: "ack_latency_retransmitted_thrice_ms",
    label: "ACK latency, retransmitted three times",
    unit: Unit::Milliseconds,
    meaning: "of those that were retransmitted three times",
    of: |measures| &measures.latency.ack_latency_retransmitted[2],
};

/// Flow completion time (2013 poster, figure 1).
pub const COMPLETION: Distributed = Measure {
    name: "completion_ms",
    label: "completion time",
    unit: Unit::Milliseconds,
    meaning: "of each connection, from the first SYN to the ACK of the last byte that the end sent \
              which opened it, if all was acknowledged",
    of: |measures| &measures.completion.time,
};

/// Flow completion time where one of the last three segments was lost (2013 poster, figure 1).
pub const COMPLETION_WITH_A_TAIL_LOSS: Distributed = Measure {
    name: "completion_with_a_tail_loss_ms",
    label: "completion time, with a tail loss",
    unit: Unit::Milliseconds,
    meaning: "of those connections of which one of the last three segments was lost, or a copy of \
              one",
    of: |measures| &measures.completion.with_a_tail_loss,
};

/// Round-trip time (P. Karn, C. Partridge, 1987).
pub const RTT: Distributed = Measure {
    name: "rtt_ms",
    label: "RTT",
    unit: Unit::Milliseconds,
    meaning: "from sending to the ACK, where the last packet that the ACK covers was sent once and \
              in no bundle",
    of: |measures| &measures.latency.rtt,
};

/// Delay variation (RFC 5481, PDV): the queueing delay where the path does not change (thesis,
/// section 3.4.3).
pub const DELAY_VARIATION: Distributed = Measure {
    name: "delay_variation_ms",
    label: "queueing delay",
    unit: Unit::Milliseconds,
    meaning: "delay of each packet with payload above the smallest one of its connection, by the \
              drift of the lower hull of all delays",
    of: |measures| &measures.delay.variation,
};

/// One-way delay: where the clocks differ, the delay above the smallest one of all connections plus
/// half of the smallest round trip.
pub const ONE_WAY_DELAY: Distributed = Measure {
    name: "one_way_delay_ms",
    label: "one-way delay",
    unit: Unit::Milliseconds,
    meaning: "of each packet with payload, from the sender to the receiver",
    of: |measures| &measures.delay.one_way,
};

/// Delivery latency at the transport layer (LCN 2008, section V).
pub const TRANSPORT_LATENCY: Distributed = Measure {
    name: "transport_latency_ms",
    label: "transport latency",
    unit: Unit::Milliseconds,
    meaning: "from the first time that a byte range was sent to its first arrival",
    of: |measures| &measures.delay.transport,
};

/// Delivery latency at the application layer (LCN 2008, section V).
pub const APPLICATION_LATENCY: Distributed = Measure {
    name: "application_latency_ms",
    label: "application latency",
    unit: Unit::Milliseconds,
    meaning: "from the first time that a byte range was sent until it and all bytes before it had \
              arrived, so that the application could read it",
    of: |measures| &measures.delay.application,
};

/// Inter-transmission time.
pub const ITT: Distributed = Measure {
    name: "itt_ms",
    label: "ITT",
    unit: Unit::Milliseconds,
    meaning: "between two packets with payload as they are sent",
    of: |measures| &measures.spacing.itt,
};

/// Inter-arrival time.
pub const IAT: Distributed = Measure {
    name: "iat_ms",
    label: "IAT",
    unit: Unit::Milliseconds,
    meaning: "between two packets with payload as they arrive",
    of: |measures| &measures.spacing.iat,
};

/// Payload of a packet.
pub const PAYLOAD: Distributed = Measure {
    name: "payload_bytes",
    label: "payload",
    unit: Unit::Bytes,
    meaning: "of each packet that has any",
    of: |measures| &measures.spacing.payload,
};

/// Size of a packet.
pub const PACKET: Distributed = Measure {
    name: "packet_bytes",
    label: "packet",
    unit: Unit::Bytes,
    meaning: "size on the wire of each packet with payload, with all headers",
    of: |measures| &measures.spacing.packet,
};

/// Packets in flight (LCN 2015, section III).
pub const IN_FLIGHT: Distributed = Measure {
    name: "in_flight_packets",
    label: "packets in flight",
    unit: Unit::Number,
    meaning: "as each packet with payload finds them when it is sent, itself not counted",
    of: |measures| &measures.spacing.in_flight,
};

/// Packets in flight, where the stream bundles (LCN 2015, section III.B.2: the test of thinness).
pub const IN_FLIGHT_OF_BUNDLES: Distributed = Measure {
    name: "in_flight_of_bundles_packets",
    label: "packets in flight, of bundles",
    unit: Unit::Number,
    meaning: "as each packet that carries a bundle finds them when it is sent, itself not counted",
    of: |measures| &measures.spacing.in_flight_of_bundles,
};

/// Head-of-line blocking; in JSON it is `head_of_line.wait_ms`.
pub const HEAD_OF_LINE_WAIT: Distributed = Measure {
    name: "head_of_line_wait_ms",
    label: "head-of-line blocking",
    unit: Unit::Milliseconds,
    meaning: "how long each byte range that had arrived waited for missing bytes before it",
    of: |measures| &measures.head_of_line.wait,
};

/// Those that stand beside each other in JSON, in that order.
const BESIDE: [Distributed; 17] = [
    ACK_LATENCY,
    ACK_LATENCY_RETRANSMITTED_ONCE,
    ACK_LATENCY_RETRANSMITTED_TWICE,
    ACK_LATENCY_RETRANSMITTED_THRICE,
    COMPLETION,
    COMPLETION_WITH_A_TAIL_LOSS,
    RTT,
    DELAY_VARIATION,
    ONE_WAY_DELAY,
    TRANSPORT_LATENCY,
    APPLICATION_LATENCY,
    ITT,
    IAT,
    PAYLOAD,
    PACKET,
    IN_FLIGHT,
    IN_FLIGHT_OF_BUNDLES,
];

/// All distributions.
pub fn distributions() -> impl Iterator<Item = Distributed> {
    BESIDE.into_iter().chain([HEAD_OF_LINE_WAIT])
}

/// A value of a distribution of times or of others, in the measure's unit.
#[must_use]
pub fn in_unit(value: u64, unit: Unit) -> f64 {
    value as f64 / per_unit(unit)
}

fn per_unit(unit: Unit) -> f64 {
    match unit {
        Unit::Milliseconds => 1e6,
        Unit::Bytes | Unit::Number | Unit::BitPerSecond | Unit::Share => 1.0,
    }
}

impl Serialize for Measures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sent", &self.sent)?;
        map.serialize_entry("loss", &self.loss)?;
        for measure in BESIDE {
            let summary = Summary((measure.of)(self), per_unit(measure.unit));
            map.serialize_entry(measure.name, &summary)?;
        }
        map.serialize_entry("untold", &self.delay.untold)?;
        map.serialize_entry("head_of_line", &self.head_of_line)?;
        map.serialize_entry("slices", &self.slices)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_each_distribution() {
        let documentation = include_str!("../../../../docs/analyse.md");
        for Measure {
            name,
            label,
            unit,
            meaning,
            ..
        } in distributions()
        {
            let row = format!("| `{name}` | {label} | {} | {meaning} |\n", unit.symbol());
            assert!(
                documentation.contains(&row),
                "expected in docs/analyse.md:\n{row}"
            );
        }
    }

    #[test]
    fn a_distributions_name_ends_in_its_unit() {
        for measure in distributions() {
            let end = match measure.unit {
                Unit::Milliseconds => "_ms",
                Unit::Bytes => "_bytes",
                _ => "_packets",
            };
            assert!(measure.name.ends_with(end), "{}", measure.name);
        }
    }
}
