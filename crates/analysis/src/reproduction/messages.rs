use std::collections::BTreeMap;

use pillion_measure::Distribution;

use super::digest::levels;
use super::{Digest, GroupDigest};

/// A message that was read.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Its stream.
    pub stream: u32,
    /// Its number in the stream.
    pub sequence: u64,
    /// Its size in bytes.
    pub size: u32,
    /// When it was written, in nanoseconds.
    pub written_ns: u64,
    /// From writing to reading, in microseconds.
    pub latency_us: f64,
}

/// The messages of a group as its applications wrote them, whatever TCP made of them.
#[derive(Debug, Default)]
pub struct Messages {
    sizes: Distribution,
    gaps_ns: Distribution,
    latencies_ns: Distribution,
    /// Stream, number and time of the one before.
    last: Option<(u32, u64, u64)>,
}

impl Messages {
    /// Enters a message. Those of a stream come one after the other.
    pub fn add(&mut self, message: &Message) {
        let Message {
            stream,
            sequence,
            written_ns,
            ..
        } = *message;
        self.sizes.record(message.size.into());
        self.latencies_ns.record((message.latency_us * 1e3) as i64);
        if let Some((of, before, at_ns)) = self.last.replace((stream, sequence, written_ns))
            && of == stream
            && sequence == before + 1
        {
            let gap_ns = i64::try_from(written_ns.saturating_sub(at_ns));
            self.gaps_ns.record(gap_ns.unwrap_or(i64::MAX));
        }
    }
}

impl Digest {
    /// Adds what the applications of groups wrote, by the groups' names.
    pub fn add_messages(&mut self, groups: BTreeMap<String, Messages>) {
        for (name, mut messages) in groups {
            let group = self.groups.entry(name).or_default();
            group.add("message_bytes", &mut messages.sizes, 1.0);
            group.add("message_gap_ms", &mut messages.gaps_ns, 1e6);
            group.add("delivery_latency_ms", &mut messages.latencies_ns, 1e6);
        }
    }
}

impl GroupDigest {
    /// Adds a distribution of whose unit the measure's has so many.
    fn add(&mut self, name: &str, of: &mut Distribution, unit: f64) {
        of.settle();
        let quantiles = levels().map(|level| Some(of.quantile(level)? as f64 / unit));
        if let Some(quantiles) = quantiles.collect() {
            self.distributions.insert(name.to_owned(), quantiles);
        }
        if let Some(mean) = of.mean() {
            self.values.insert(format!("{name} mean"), mean / unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_gaps_of_messages_are_measures_of_their_group() {
        let mut messages = Messages::default();
        let ms = 1_000_000;
        // Number 2 of the first stream never came, and another stream follows.
        for (stream, sequence, size, written_ms, latency_ms) in [
            (1, 0, 100, 5, 65.0),
            (1, 1, 200, 8, 65.0),
            (1, 3, 300, 90, 65.0),
            (2, 0, 400, 1000, 65.0),
            (2, 1, 500, 1005, 300.0),
        ] {
            messages.add(&Message {
                stream,
                sequence,
                size,
                written_ns: written_ms * ms,
                latency_us: latency_ms * 1e3,
            });
        }
        let mut digest = Digest::default();
        digest.add_messages(BTreeMap::from([("any".to_owned(), messages)]));
        let value = |measure| digest.groups["any"].value(measure).unwrap();
        assert_eq!(
            [value("message_bytes mean"), value("message_bytes p50")],
            [300.0; 2]
        );
        assert_eq!(
            [value("message_gap_ms p1"), value("message_gap_ms p99")],
            [3.0, 5.0]
        );
        assert_eq!(value("message_gap_ms mean"), 4.0);
        assert_eq!(value("delivery_latency_ms mean"), 112.0);
    }
}
