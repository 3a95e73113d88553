//! Messages that applications wrote and read, and how long they waited in the sender.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use pillion_stats::measure::Distribution;
use pillion_trace::{Connection, Direction, Observer, SentPacket};

use super::slices::WIDTH_NS;
use super::{GroupMeasures, RunMeasures};
use crate::measure_ref::{DELIVERY_LATENCY, SLOWEST_DELIVERY, levels};

/// The start of a run that `settled_delivery_ms` excludes, with the governor's first decisions.
const SETTLED_NS: i64 = 10_000_000_000;

/// A message that was read.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The number of the stream.
    pub stream: u32,
    /// The sender's address and port.
    pub sender: SocketAddr,
    /// The message's number in the stream, from 0.
    pub sequence: u64,
    /// Size in bytes.
    pub size: u32,
    /// When it was written, in nanoseconds since 1970.
    pub written_ns: i64,
    /// Time from write to read, in microseconds.
    pub latency_us: f64,
}

/// The messages of a group, as the applications wrote them.
#[derive(Debug)]
pub struct Messages {
    started_ns: i64,
    /// The maximum delivery latency in milliseconds of the messages written in each second after
    /// `started_ns`; 0 without messages.
    slowest_ms: Vec<f64>,
    sizes: Distribution,
    gaps_ns: Distribution,
    latencies_ns: Distribution,
    /// Latencies of the messages written at least [`SETTLED_NS`] after the start.
    settled_ns: Distribution,
    sojourns_ns: Distribution,
    previous: Option<PreviousMessage>,
}

/// The previous message of the same stream.
#[derive(Debug)]
struct PreviousMessage {
    stream: u32,
    sequence: u64,
    written_ns: i64,
    /// The end of the message in bytes of the stream; `None` after a missing message.
    end: Option<u64>,
}

impl Messages {
    /// Creates an empty collection. Streams send from `started_ns`, in nanoseconds since 1970, for
    /// `duration_s` seconds.
    #[must_use]
    pub fn new(started_ns: i64, duration_s: f64) -> Self {
        Self {
            started_ns,
            slowest_ms: vec![0.0; duration_s as usize],
            sizes: Distribution::default(),
            gaps_ns: Distribution::default(),
            latencies_ns: Distribution::default(),
            settled_ns: Distribution::default(),
            sojourns_ns: Distribution::default(),
            previous: None,
        }
    }

    /// Adds a message. The messages of a stream have to be added consecutively and in order.
    pub fn add(&mut self, message: &Message, transmissions: &FirstTransmissions) {
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
        let since_start_ns = (written_ns - self.started_ns).max(0);
        if since_start_ns >= SETTLED_NS {
            self.settled_ns.record(latency_ns);
        }
        let second = since_start_ns / WIDTH_NS;
        if let Some(slowest_ms) = self.slowest_ms.get_mut(second as usize) {
            *slowest_ms = slowest_ms.max(message.latency_us / 1e3);
        }
        let before = self.previous.take();
        let before = before.filter(|it| it.stream == stream && it.sequence + 1 == sequence);
        if let Some(before) = &before {
            self.gaps_ns.record(written_ns - before.written_ns);
        }
        let start = match sequence {
            0 => Some(0),
            _ => before.and_then(|it| it.end),
        };
        let end = start.map(|start| start + u64::from(size));
        let sent_ns = end.and_then(|end| transmissions.sent_at(message.sender, end));
        if let Some(sent_ns) = sent_ns {
            self.sojourns_ns.record(sent_ns - written_ns);
        }
        self.previous = Some(PreviousMessage {
            stream,
            sequence,
            written_ns,
            end,
        });
    }
}

impl RunMeasures {
    /// Adds the messages of groups, by group name.
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

impl GroupMeasures {
    /// Adds a distribution's quantiles and mean, divided by `unit`.
    fn add(&mut self, name: &str, of: &mut Distribution, unit: f64) {
        of.finalize();
        let quantiles = levels().map(|level| Some(of.quantile(level)? as f64 / unit));
        if let Some(quantiles) = quantiles.collect() {
            self.distributions.insert(name.to_owned(), quantiles);
        }
        if let Some(mean) = of.mean() {
            self.values.insert(format!("{name} mean"), mean / unit);
        }
    }
}

/// Headers of IP and Ethernet, and of UDP, in bytes.
const HEADERS: u64 = 20 + 14;
const UDP_HEADER: u64 = 8;
/// The maximum payload of an IP packet, on a link with an MTU of 1500 B.
const MAX_IP_PAYLOAD: u64 = 1480;

/// The received datagrams of a group, by slices since the start of its streams.
#[derive(Debug)]
pub struct Datagrams {
    started_ns: i64,
    /// Bytes on the wire and payload bytes of each slice.
    slices: Vec<[u64; 2]>,
}

impl Datagrams {
    /// Creates empty slices. Streams send from `started_ns`, in nanoseconds since 1970, for
    /// `duration_s` seconds.
    #[must_use]
    pub fn new(started_ns: i64, duration_s: f64) -> Self {
        Self {
            started_ns,
            slices: vec![[0; 2]; duration_s as usize],
        }
    }

    /// Adds a received datagram.
    pub fn add(&mut self, message: &Message) {
        let received_ns = message.written_ns + (message.latency_us * 1e3) as i64;
        let slice = (received_ns - self.started_ns).max(0) / WIDTH_NS;
        let payload = u64::from(message.size);
        let packets = (payload + UDP_HEADER).div_ceil(MAX_IP_PAYLOAD);
        if let Some([wire, read]) = self.slices.get_mut(slice as usize) {
            *wire += payload + UDP_HEADER + packets * HEADERS;
            *read += payload;
        }
    }
}

impl RunMeasures {
    /// Adds the rates of datagram groups, by group name, because traces only have TCP.
    pub fn add_datagrams(&mut self, groups: BTreeMap<String, Datagrams>) {
        for (name, datagrams) in groups {
            let group = self.groups.entry(name).or_default();
            for (index, name) in [
                "received_throughput_bit_per_s",
                "received_goodput_bit_per_s",
            ]
            .into_iter()
            .enumerate()
            {
                let slices = datagrams.slices.iter();
                let rates: Vec<f64> = slices.map(|slice| slice[index] as f64 * 8.0).collect();
                let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
                group.values.insert(name.to_owned(), mean);
                group.slices.insert(name.to_owned(), rates);
            }
        }
    }
}

// The wait of a message in its sender until TCP sends it (LCN 2015, section IV.A, which could not
// measure it).

/// The time of the first transmission of each byte of each stream, from the trace at the senders.
#[derive(Debug, Default)]
pub struct FirstTransmissions(HashMap<SocketAddr, Vec<FirstTransmission>>);

/// A packet with new bytes.
#[derive(Debug, Clone, Copy)]
struct FirstTransmission {
    /// The number of bytes of the stream up to and including its last one.
    end: u64,
    at_ns: i64,
}

impl FirstTransmissions {
    /// Returns when byte number `bytes` of a stream was first sent, in nanoseconds since 1970;
    /// `None` if the trace does not show it.
    #[must_use]
    pub fn sent_at(&self, sender: SocketAddr, bytes: u64) -> Option<i64> {
        let transmissions = self.0.get(&sender)?;
        let index = transmissions.partition_point(|it| it.end < bytes);
        transmissions.get(index).map(|it| it.at_ns)
    }
}

#[cfg(test)]
impl FirstTransmissions {
    /// Creates the transmissions of one stream: the end of each packet in bytes of the stream, and
    /// its time.
    pub(super) fn from_packets(sender: SocketAddr, packets: &[(u64, i64)]) -> Self {
        let packets = packets.iter();
        let transmissions = packets.map(|&(end, at_ns)| FirstTransmission { end, at_ns });
        Self(HashMap::from([(sender, transmissions.collect())]))
    }
}

impl Observer for FirstTransmissions {
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if sent.new_bytes == 0 {
            return;
        }
        let sender = match sent.direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        // The SYN has position 0.
        let end = u64::try_from(sent.end - 1).unwrap_or_default();
        let at_ns = sent.at_ns;
        let transmissions = self.0.entry(sender.into()).or_default();
        transmissions.push(FirstTransmission { end, at_ns });
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

    fn measures(messages: &[Message], transmissions: &FirstTransmissions) -> GroupMeasures {
        let mut entered = Messages::new(0, 2.9);
        for message in messages {
            entered.add(message, transmissions);
        }
        let mut measures = RunMeasures::default();
        measures.add_messages(BTreeMap::from([("any".to_owned(), entered)]));
        measures.groups.remove("any").unwrap()
    }

    #[test]
    fn message_sizes_and_gaps_are_group_measures() {
        // Number 2 of the first stream is missing, and another stream follows.
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
        let measures = measures(&messages, &FirstTransmissions::default());
        let value = |measure| measures.named(measure).unwrap();
        let known = |name: &String| MESSAGE_DISTRIBUTIONS.contains(&name.as_str());
        assert!(measures.distributions.keys().all(known), "{measures:?}");
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
        assert_eq!(measures.named("sojourn_ms p50"), None, "there is no trace");
        let slowest = measures.per_slice(&"slowest_delivery_ms of slices".parse().unwrap());
        assert_eq!(slowest, Some(&[65.0, 300.0][..]));
    }

    #[test]
    fn first_ten_seconds_are_not_settled() {
        let settled = Message {
            latency_us: 20_000.0,
            ..message(1, 1, 100, 10_000)
        };
        let messages = [message(1, 0, 100, 9_999), settled];
        let measures = measures(&messages, &FirstTransmissions::default());
        assert_eq!(measures.named("settled_delivery_ms mean"), Some(20.0));
    }

    #[test]
    fn sojourn_ends_when_last_byte_is_first_sent() {
        let sender = ([127, 0, 0, 1], 20000).into();
        let transmissions =
            FirstTransmissions::from_packets(sender, &[(100, 5 * MS), (450, 40 * MS)]);
        let messages = [
            message(1, 0, 100, 5),
            // These two leave together, and the third was never sent.
            message(1, 1, 100, 10),
            message(1, 2, 250, 38),
            message(1, 3, 250, 60),
            // After a missing message, the position of this one is unknown.
            message(1, 5, 50, 70),
        ];
        let measures = measures(&messages, &transmissions);
        let value = |measure| measures.named(measure).unwrap();
        assert_eq!(value("sojourn_ms p1"), 0.0);
        assert_eq!(value("sojourn_ms p50"), 2.0);
        assert_eq!(value("sojourn_ms p100"), 30.0);
        assert_eq!(value("sojourn_ms mean"), 32.0 / 3.0);
    }

    #[test]
    fn datagrams_count_with_headers_in_second_of_arrival() {
        let mut datagrams = Datagrams::new(5_000_000_000, 2.5);
        for (written_ns, latency_us, size) in [
            (5_000_000_000, 0.0, 1472),
            // Too late for the first second, and in two packets.
            (5_999_999_000, 2.0, 1473),
            // Not within a complete second.
            (7_100_000_000, 0.0, 1472),
        ] {
            datagrams.add(&Message {
                stream: 0,
                sender: ([127, 0, 0, 1], 20000).into(),
                sequence: 0,
                size,
                written_ns,
                latency_us,
            });
        }
        let mut measures = RunMeasures::default();
        measures.add_datagrams(BTreeMap::from([("udp".to_owned(), datagrams)]));
        let group = &measures.groups["udp"];
        let slices = group.per_slice(&"received_throughput_bit_per_s of slices".parse().unwrap());
        let second = 8.0 * (1473.0 + 8.0 + 68.0);
        assert_eq!(slices, Some(&[1514.0 * 8.0, second][..]));
        let value = |measure: &str| group.named(measure).unwrap();
        let mean = value("received_goodput_bit_per_s");
        assert_eq!(mean, (1472.0 + 1473.0) * 8.0 / 2.0);
        assert_eq!(
            value("received_throughput_bit_per_s of slices p100"),
            second
        );
        let distance = value("received_throughput_bit_per_s of slices off 12112");
        assert!(
            (distance - (second / 12112.0 - 1.0) / 2.0).abs() < 1e-9,
            "{distance}"
        );
    }
}
