//! Checks the analyser against tshark, packet by packet, for properties that both define alike.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use pillion_trace::{Analysis, Class, Connection, Direction, Observer, ReceivedAck, SentPacket};

use super::scenario::MARKER_PORTS;
use super::{is_stream, open};
use crate::common::*;

/// Properties of one packet that either program reports.
#[derive(Debug, Default, PartialEq)]
struct PacketFlags {
    /// The packet carries bytes a second time.
    retransmits: bool,
    duplicate_ack: bool,
    /// The packet changes nothing but the window, SACK apart.
    updates_window: bool,
    /// The packet leaves nothing outstanding.
    is_idle: bool,
    /// The packet acknowledges more than payload.
    acks_fin: bool,
    /// The packet is the first to acknowledge something, if only SYN or FIN.
    acks_new: bool,
    rtt_ns: Option<i64>,
}

type FlagsByPacket = BTreeMap<u64, PacketFlags>;

/// Compares both programs' results for the trace at the sender. Skipped without tshark.
pub fn compare(trace: &Path) {
    let Some(theirs) = tshark(trace) else {
        println!("left out without tshark: comparison with tshark");
        return;
    };
    let mut analysis = Analysis::new(AnalyserFlags::default());
    open(trace).for_each(|packet| analysis.packet(&packet));
    let ours = analysis.finish().flags;
    let none = PacketFlags::default();
    for number in ours.keys().chain(theirs.keys()) {
        let our = ours.get(number).unwrap_or(&none);
        let their = theirs.get(number).unwrap_or(&none);
        assert_eq!(our.retransmits, their.retransmits, "packet {number}");
        match (our.duplicate_ack, their.duplicate_ack) {
            (true, false) => assert!(their.updates_window, "packet {number}"),
            (false, true) => assert!(our.is_idle, "packet {number}"),
            _ => {}
        }
        match (our.rtt_ns, their.rtt_ns) {
            // tshark measures from the FIN, the analyser from the preceding data.
            (Some(rtt_ns), Some(their)) if our.acks_fin => assert!(their <= rtt_ns),
            (Some(rtt_ns), their) => assert_eq!(their, Some(rtt_ns), "packet {number}"),
            // Covers retransmitted or bundled data, and SYN and FIN.
            (None, Some(_)) => assert!(our.acks_new, "packet {number}"),
            (None, None) => {}
        }
    }
    let is_retransmission =
        |flags: &FlagsByPacket| flags.values().any(|packet_flags| packet_flags.retransmits);
    assert!(is_retransmission(&ours), "something was retransmitted");
}

#[derive(Default)]
struct AnalyserFlags {
    flags: FlagsByPacket,
    /// End position of the sent data, by connection.
    ends: HashMap<u64, i64>,
    /// Position of the last cumulative ACK, by connection.
    acked: HashMap<u64, i64>,
}

impl Observer for AnalyserFlags {
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if is_stream(connection) {
            if sent.direction == Direction::Forward {
                let end = self.ends.entry(connection.number).or_default();
                *end = sent.end.max(*end);
            }
            let packet_flags = self.flags.entry(sent.packet).or_default();
            packet_flags.retransmits =
                matches!(sent.class, Class::Bundled | Class::Retransmission { .. });
        }
    }

    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        if is_stream(connection) && acked.direction == Direction::Forward {
            let packet_flags = self.flags.entry(acked.packet).or_default();
            packet_flags.duplicate_ack = acked.duplicate;
            let end = self.ends.get(&connection.number).copied().unwrap_or(0);
            packet_flags.is_idle = end <= acked.position;
            packet_flags.acks_fin = end < acked.position;
            let last = self.acked.insert(connection.number, acked.position);
            packet_flags.acks_new = last.is_none_or(|last| last < acked.position);
            packet_flags.rtt_ns = acked.rtt_ns;
        }
    }
}

/// Requested fields: packet fields first, then analysis fields.
const FIELDS: [&str; 9] = [
    "frame.number",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.len",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.window_update",
    "tcp.analysis.ack_rtt",
];

/// Runs tshark; `None` if it is not installed.
fn tshark(trace: &Path) -> Option<FlagsByPacket> {
    let mut command = Command::new("tshark");
    command
        .args([
            "-T",
            "fields",
            "-E",
            "separator=,",
            "-E",
            "occurrence=f",
            "-r",
        ])
        .arg(trace);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", stderr(&output));
    Some(stdout(&output).lines().filter_map(parse_line).collect())
}

fn parse_line(line: &str) -> Option<(u64, PacketFlags)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [
        number,
        from,
        to,
        len,
        retransmission,
        out_of_order,
        duplicate,
        update,
        rtt,
    ] = fields[..]
    else {
        panic!("{line}");
    };
    let is_marker = |port: &str| {
        MARKER_PORTS
            .iter()
            .any(|send_marker| send_marker.to_string() == port)
    };
    if is_marker(from) || is_marker(to) {
        return None;
    }
    let is_retransmission = !retransmission.is_empty() || !out_of_order.is_empty();
    let seconds: Option<f64> = rtt.parse().ok();
    let from_receiver = from == "7777";
    let packet_flags = PacketFlags {
        retransmits: is_retransmission && len != "0",
        duplicate_ack: from_receiver && !duplicate.is_empty(),
        updates_window: !update.is_empty(),
        rtt_ns: seconds
            .filter(|_| from_receiver)
            .map(|seconds| (seconds * 1e9).round() as i64),
        ..PacketFlags::default()
    };
    Some((number.parse().expect("a number"), packet_flags))
}
