//! All distributions of [`Measures`]: the source of name, unit and meaning for JSON, tables,
//! summaries, reports and documentation.

use pillion_stats::measure::{Distribution, Measure, Unit};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::latency::Summary;
use super::measures::Measures;

/// A distribution among [`Measures`]; times are in nanoseconds there.
pub type DistributionMeasure = Measure<fn(&Measures) -> &Distribution>;

/// ACK latency (LCN 2015, section IV.A; the thesis' ALD, section 3.4.3).
pub const ACK_LATENCY: DistributionMeasure = Measure {
    name: "ack_latency_ms",
    label: "ACK latency",
    unit: Unit::Milliseconds,
    meaning: "first transmission of a byte range to the ACK that covers it; one value per range",
    of: |measures| &measures.latency.ack_latency,
};

/// ACK latency of ranges retransmitted once (2013 poster, figure 2).
pub const ACK_LATENCY_RETRANSMITTED_ONCE: DistributionMeasure = Measure {
    name: "ack_latency_retransmitted_once_ms",
    label: "ACK latency, retransmitted once",
    unit: Unit::Milliseconds,
    meaning: "ACK latency of byte ranges that were retransmitted once",
    of: |measures| &measures.latency.ack_latency_retransmitted[0],
};

/// ACK latency of ranges retransmitted twice.
pub const ACK_LATENCY_RETRANSMITTED_TWICE: DistributionMeasure = Measure {
    name: "ack_latency_retransmitted_twice_ms",
    label: "ACK latency, retransmitted twice",
    unit: Unit::Milliseconds,
    meaning: "ACK latency of byte ranges that were retransmitted twice",
    of: |measures| &measures.latency.ack_latency_retransmitted[1],
};

/// ACK latency of ranges retransmitted three times.
pub const ACK_LATENCY_RETRANSMITTED_THRICE: DistributionMeasure = Measure {
    name: "ack_latency_retransmitted_thrice_ms",
    label: "ACK latency, retransmitted three times",
    unit: Unit::Milliseconds,
    meaning: "ACK latency of byte ranges that were retransmitted three times",
    of: |measures| &measures.latency.ack_latency_retransmitted[2],
};

/// Flow completion time (2013 poster, figure 1).
pub const COMPLETION: DistributionMeasure = Measure {
    name: "completion_ms",
    label: "completion time",
    unit: Unit::Milliseconds,
    meaning: "first SYN to the ACK of the last byte from the end that opened the connection, if \
              all was acknowledged",
    of: |measures| &measures.completion.time,
};

/// Flow completion time if one of the last three segments was lost (2013 poster, figure 1).
pub const COMPLETION_WITH_A_TAIL_LOSS: DistributionMeasure = Measure {
    name: "completion_with_a_tail_loss_ms",
    label: "completion time, with a tail loss",
    unit: Unit::Milliseconds,
    meaning: "completion time of connections in which one of the last three segments, or a copy \
              of one, was lost",
    of: |measures| &measures.completion.with_a_tail_loss,
};

/// Round-trip time (P. Karn, C. Partridge, 1987).
pub const RTT: DistributionMeasure = Measure {
    name: "rtt_ms",
    label: "RTT",
    unit: Unit::Milliseconds,
    meaning: "transmission to ACK, if the last packet that the ACK covers was sent once and in no \
              bundle",
    of: |measures| &measures.latency.rtt,
};

/// Delay variation (RFC 5481, PDV): the queueing delay if the path does not change (thesis, section
/// 3.4.3).
pub const DELAY_VARIATION: DistributionMeasure = Measure {
    name: "delay_variation_ms",
    label: "queueing delay",
    unit: Unit::Milliseconds,
    meaning: "delay of each packet with payload above the smallest of its connection, without the \
              drift of the lower hull of all delays",
    of: |measures| &measures.delay.variation,
};

/// One-way delay. With two clocks: the delay above the smallest one of all connections, plus half
/// of the smallest round trip.
pub const ONE_WAY_DELAY: DistributionMeasure = Measure {
    name: "one_way_delay_ms",
    label: "one-way delay",
    unit: Unit::Milliseconds,
    meaning: "sender to receiver, of each packet with payload",
    of: |measures| &measures.delay.one_way,
};

/// Delivery latency at the transport layer (LCN 2008, section V).
pub const TRANSPORT_LATENCY: DistributionMeasure = Measure {
    name: "transport_latency_ms",
    label: "transport latency",
    unit: Unit::Milliseconds,
    meaning: "first transmission of a byte range to its first arrival",
    of: |measures| &measures.delay.transport,
};

/// Delivery latency at the application layer (LCN 2008, section V).
pub const APPLICATION_LATENCY: DistributionMeasure = Measure {
    name: "application_latency_ms",
    label: "application latency",
    unit: Unit::Milliseconds,
    meaning: "first transmission of a byte range to the arrival of it and all bytes before it, \
              when the application could read it",
    of: |measures| &measures.delay.application,
};

/// Inter-transmission time.
pub const ITT: DistributionMeasure = Measure {
    name: "itt_ms",
    label: "ITT",
    unit: Unit::Milliseconds,
    meaning: "time between two packets with payload, as sent",
    of: |measures| &measures.spacing.itt,
};

/// Inter-arrival time.
pub const IAT: DistributionMeasure = Measure {
    name: "iat_ms",
    label: "IAT",
    unit: Unit::Milliseconds,
    meaning: "time between two packets with payload, as received",
    of: |measures| &measures.spacing.iat,
};

/// Payload of a packet.
pub const PAYLOAD: DistributionMeasure = Measure {
    name: "payload_bytes",
    label: "payload",
    unit: Unit::Bytes,
    meaning: "payload of each packet that has any",
    of: |measures| &measures.spacing.payload,
};

/// Size of a packet.
pub const PACKET: DistributionMeasure = Measure {
    name: "packet_bytes",
    label: "packet",
    unit: Unit::Bytes,
    meaning: "wire size of each packet with payload, with all headers",
    of: |measures| &measures.spacing.packet,
};

/// Packets in flight (LCN 2015, section III).
pub const IN_FLIGHT: DistributionMeasure = Measure {
    name: "in_flight_packets",
    label: "packets in flight",
    unit: Unit::Number,
    meaning: "packets in flight when a packet with payload is sent, itself excluded",
    of: |measures| &measures.spacing.in_flight,
};

/// Packets in flight when the stream bundles (LCN 2015, section III.B.2: thin-stream test).
pub const IN_FLIGHT_OF_BUNDLES: DistributionMeasure = Measure {
    name: "in_flight_of_bundles_packets",
    label: "packets in flight, of bundles",
    unit: Unit::Number,
    meaning: "packets in flight when a packet with a bundle is sent, itself excluded",
    of: |measures| &measures.spacing.in_flight_of_bundles,
};

/// Head-of-line blocking; in JSON it is `head_of_line.wait_ms`.
pub const HEAD_OF_LINE_WAIT: DistributionMeasure = Measure {
    name: "head_of_line_wait_ms",
    label: "head-of-line blocking",
    unit: Unit::Milliseconds,
    meaning: "wait of each byte range that had arrived for missing bytes before it",
    of: |measures| &measures.head_of_line.wait,
};

/// Distributions that are top-level fields in JSON, in this order.
const TOP_LEVEL: [DistributionMeasure; 17] = [
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
pub fn distributions() -> impl Iterator<Item = DistributionMeasure> {
    TOP_LEVEL.into_iter().chain([HEAD_OF_LINE_WAIT])
}

/// Converts a stored value to the measure's unit.
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
        for measure in TOP_LEVEL {
            let summary = Summary((measure.of)(self), per_unit(measure.unit));
            map.serialize_entry(measure.name, &summary)?;
        }
        map.serialize_entry("unknown_delays", &self.delay.unknown_delays)?;
        map.serialize_entry("head_of_line", &self.head_of_line)?;
        map.serialize_entry("slices", &self.slices)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_each_distribution() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/analyse.md");
        let documentation = std::fs::read_to_string(path).unwrap();
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
                "expected in docs/lab/analyse.md:\n{row}"
            );
        }
    }

    #[test]
    fn distribution_names_end_in_their_unit() {
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
