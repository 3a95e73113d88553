//! What applications wrote and read, and how long it waited in the sender.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use pillion_stats::measure::Distribution;
use pillion_trace::{Connection, Direction, Observer, Sent};

use super::slices::WIDTH_NS;
use super::{Digest, GroupDigest};
use crate::measure_ref::{DELIVERY_LATENCY, SLOWEST_DELIVERY, levels};

/// Start of a run that `settled_delivery_ms` leaves out; the governor's first decisions fall into it.
const SETTLED_NS: i64 = 10_000_000_000;

/// A message that was read.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Its stream.
    pub stream: u32,
    /// Where its stream comes from.
    pub sender: SocketAddr,
    /// Its number in the stream.
    pub sequence: u64,
    /// Its size in bytes.
    pub size: u32,
    /// When it was written, in nanoseconds since 1970.
    pub written_ns: i64,
    /// From writing to reading, in microseconds.
    pub latency_us: f64,
}

/// The messages of a group as its applications wrote them, whatever TCP made of them.
#[derive(Debug)]
pub struct Messages {
    began_ns: i64,
    /// Longest delivery latency, in milliseconds, of the messages written in each second since then; 0
    /// if there are none.
    slowest_ms: Vec<f64>,
    sizes: Distribution,
    gaps_ns: Distribution,
    latencies_ns: Distribution,
    /// Latencies of the messages written [`SETTLED_NS`] after the start or later.
    settled_ns: Distribution,
    sojourns_ns: Distribution,
    last: Option<Last>,
}

/// The message before.
#[derive(Debug)]
struct Last {
    stream: u32,
    sequence: u64,
    written_ns: i64,
    /// Bytes of the stream up to its end, unless one before it never came.
    end: Option<u64>,
}

impl Messages {
    /// For streams that were to send from this moment on, in nanoseconds since 1970, for so many
    /// seconds.
    #[must_use]
    pub fn new(began_ns: i64, duration_s: f64) -> Self {
        Self {
            began_ns,
            slowest_ms: vec![0.0; duration_s as usize],
            sizes: Distribution::default(),
            gaps_ns: Distribution::default(),
            latencies_ns: Distribution::default(),
            settled_ns: Distribution::default(),
            sojourns_ns: Distribution::default(),
            last: None,
        }
    }

    /// Enters a message. Those of a stream come one after the other.
    pub fn add(&mut self, message: &Message, sendings: &FirstSendings) {
        let Message {
            stream,
            sequence,
            size,
            written_ns,
            ..
        } = *message;
        self.sizes.record(size.into());
        let latency_ns = (message.latency_us * 1e3) as i64;
        self.latencies_ns.record(latency_ns);
        let since_start_ns = (written_ns - self.began_ns).max(0);
        if since_start_ns >= SETTLED_NS {
            self.settled_ns.record(latency_ns);
        }
        let second = since_start_ns / WIDTH_NS;
        if let Some(slowest_ms) = self.slowest_ms.get_mut(second as usize) {
            *slowest_ms = slowest_ms.max(message.latency_us / 1e3);
        }
        let before = self.last.take();
        let before = before.filter(|it| it.stream == stream && it.sequence + 1 == sequence);
        if let Some(before) = &before {
            self.gaps_ns.record(written_ns - before.written_ns);
        }
        let begin = match sequence {
            0 => Some(0),
            _ => before.and_then(|it| it.end),
        };
        let end = begin.map(|begin| begin + u64::from(size));
        let sent_ns = end.and_then(|end| sendings.of(message.sender, end));
        if let Some(sent_ns) = sent_ns {
            self.sojourns_ns.record(sent_ns - written_ns);
        }
        self.last = Some(Last {
            stream,
            sequence,
            written_ns,
            end,
        });
    }
}

impl Digest {
    /// Adds what the applications of groups wrote, by the groups' names.
    pub fn add_messages(&mut self, groups: BTreeMap<String, Messages>) {
        for (name, mut messages) in groups {
            let group = self.groups.entry(name).or_default();
            group.add("message_bytes", &mut messages.sizes, 1.0);
            group.add("message_gap_ms", &mut messages.gaps_ns, 1e6);
            group.add(DELIVERY_LATENCY, &mut messages.latencies_ns, 1e6);
            group.add("settled_delivery_ms", &mut messages.settled_ns, 1e6);
            group.add("sojourn_ms", &mut messages.sojourns_ns, 1e6);
            let slices = &mut group.slices;
            slices.insert(SLOWEST_DELIVERY.to_owned(), messages.slowest_ms);
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

// How long what was written waits in its sender before TCP sends it (LCN 2015, section IV.A, which
// could not measure it).

/// When each byte of each stream was first sent, as the trace at the senders shows it.
#[derive(Debug, Default)]
pub struct FirstSendings(HashMap<SocketAddr, Vec<FirstSending>>);

/// A packet with bytes that were never sent before.
#[derive(Debug, Clone, Copy)]
struct FirstSending {
    /// Bytes of the stream up to its last one.
    end: u64,
    at_ns: i64,
}

impl FirstSendings {
    /// When the last of a stream's first bytes, so many, was first sent, in nanoseconds since 1970;
    /// `None` if the trace does not show it.
    #[must_use]
    pub fn of(&self, sender: SocketAddr, bytes: u64) -> Option<i64> {
        let sendings = self.0.get(&sender)?;
        let place = sendings.partition_point(|it| it.end < bytes);
        sendings.get(place).map(|it| it.at_ns)
    }
}

#[cfg(test)]
impl FirstSendings {
    /// Of packets of one stream: where each ends, in bytes of the stream, and when it was sent.
    pub(super) fn of_packets(sender: SocketAddr, packets: &[(u64, i64)]) -> Self {
        let packets = packets.iter();
        let sendings = packets.map(|&(end, at_ns)| FirstSending { end, at_ns });
        Self(HashMap::from([(sender, sendings.collect())]))
    }
}

impl Observer for FirstSendings {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if sent.new_bytes == 0 {
            return;
        }
        let sender = match sent.direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        // The SYN stands at position 0.
        let end = u64::try_from(sent.end - 1).unwrap_or_default();
        let at_ns = sent.at_ns;
        let sendings = self.0.entry(sender.into()).or_default();
        sendings.push(FirstSending { end, at_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure_ref::MESSAGE_DISTRIBUTIONS;

    const MS: i64 = 1_000_000;

    fn message(stream: u32, sequence: u64, size: u32, written_ms: i64) -> Message {
        Message {
            stream,
            sender: ([127, 0, 0, 1], 20000).into(),
            sequence,
            size,
            written_ns: written_ms * MS,
            latency_us: 65_000.0,
        }
    }

    fn digest(messages: &[Message], sendings: &FirstSendings) -> GroupDigest {
        let mut entered = Messages::new(0, 2.9);
        for message in messages {
            entered.add(message, sendings);
        }
        let mut digest = Digest::default();
        digest.add_messages(BTreeMap::from([("any".to_owned(), entered)]));
        digest.groups.remove("any").unwrap()
    }

    #[test]
    fn sizes_and_gaps_of_messages_are_measures_of_their_group() {
        // Number 2 of the first stream never came, and another stream follows.
        let late = Message {
            latency_us: 300_000.0,
            ..message(2, 1, 500, 1005)
        };
        let messages = [
            message(1, 0, 100, 5),
            message(1, 1, 200, 8),
            message(1, 3, 300, 90),
            message(2, 0, 400, 1000),
            late,
        ];
        let digest = digest(&messages, &FirstSendings::default());
        let value = |measure| digest.named(measure).unwrap();
        let known = |name: &String| MESSAGE_DISTRIBUTIONS.contains(&name.as_str());
        assert!(digest.distributions.keys().all(known), "{digest:?}");
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
        assert_eq!(digest.named("sojourn_ms p50"), None, "there is no trace");
        let slowest = digest.of_slices(&"slowest_delivery_ms of slices".parse().unwrap());
        assert_eq!(slowest, Some(&[65.0, 300.0][..]));
    }

    #[test]
    fn first_ten_seconds_are_not_settled() {
        let settled = Message {
            latency_us: 20_000.0,
            ..message(1, 1, 100, 10_000)
        };
        let messages = [message(1, 0, 100, 9_999), settled];
        let digest = digest(&messages, &FirstSendings::default());
        assert_eq!(digest.named("settled_delivery_ms mean"), Some(20.0));
    }

    #[test]
    fn what_is_written_waits_until_its_last_byte_is_first_sent() {
        let sender = ([127, 0, 0, 1], 20000).into();
        let sendings = FirstSendings::of_packets(sender, &[(100, 5 * MS), (450, 40 * MS)]);
        let messages = [
            message(1, 0, 100, 5),
            // These two leave together, and the third was never sent.
            message(1, 1, 100, 10),
            message(1, 2, 250, 38),
            message(1, 3, 250, 60),
            // Where the one before never came, nobody knows which bytes these are.
            message(1, 5, 50, 70),
        ];
        let digest = digest(&messages, &sendings);
        let value = |measure| digest.named(measure).unwrap();
        assert_eq!(value("sojourn_ms p1"), 0.0);
        assert_eq!(value("sojourn_ms p50"), 2.0);
        assert_eq!(value("sojourn_ms p100"), 30.0);
        assert_eq!(value("sojourn_ms mean"), 32.0 / 3.0);
    }
}
