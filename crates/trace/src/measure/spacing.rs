use pillion_stats::measure::Distribution;

use super::batch::Departure;
use crate::{Arrived, Class};

/// How packets with payload follow each other, retransmissions included, and how large they are;
/// probes are left out.
#[derive(Debug, Clone, Default)]
pub struct Spacing {
    /// Inter-transmission time (ITT): between two packets as they are sent.
    pub itt: Distribution,
    /// Inter-arrival time (IAT): between two packets as they arrive.
    pub iat: Distribution,
    /// Payload of each.
    pub payload: Distribution,
    /// Size of each on the wire with all headers.
    pub packet: Distribution,
    /// Packets in flight as each finds them when it is sent, itself not counted.
    pub in_flight: Distribution,
    /// The same of each packet that carries a bundle: a test of thinness lets none go beyond its
    /// limit.
    pub in_flight_of_bundles: Distribution,
    last_sent_ns: Option<i64>,
    last_arrived_ns: Option<i64>,
}

impl Spacing {
    /// Enters a packet with payload.
    #[inline]
    pub(super) fn sent(&mut self, sent: &Departure) {
        if let Some(last_ns) = self.last_sent_ns.replace(sent.at_ns) {
            self.itt.record(sent.at_ns.saturating_sub(last_ns));
        }
        self.payload.record(sent.payload_bytes.into());
        self.packet.record(sent.wire_bytes.into());
        self.in_flight.record(sent.in_flight.into());
        if sent.class == Class::Bundled {
            self.in_flight_of_bundles.record(sent.in_flight.into());
        }
    }

    /// Enters a packet with payload.
    #[inline]
    pub(super) fn arrived(&mut self, arrived: &Arrived) {
        if let Some(last_ns) = self.last_arrived_ns.replace(arrived.at_ns) {
            self.iat.record(arrived.at_ns.saturating_sub(last_ns));
        }
    }

    /// Whether a packet with payload is known to have arrived.
    pub(super) fn has_arrived(&self) -> bool {
        self.last_arrived_ns.is_some()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.itt.add(&other.itt);
        self.iat.add(&other.iat);
        self.payload.add(&other.payload);
        self.packet.add(&other.packet);
        self.in_flight.add(&other.in_flight);
        self.in_flight_of_bundles.add(&other.in_flight_of_bundles);
    }

    pub(super) fn settle(&mut self) {
        for distribution in [
            &mut self.itt,
            &mut self.iat,
            &mut self.payload,
            &mut self.packet,
            &mut self.in_flight,
            &mut self.in_flight_of_bundles,
        ] {
            distribution.settle();
        }
    }
}
