use std::fmt::Write;

use crate::{Packet, Reasons};

/// The heading of packets as CSV, with the units.
pub const CSV_HEADING: &str = "arrived_ns,left_ns,fate,reason,protocol,source,source_port,\
    destination,destination_port,seq,payload_bytes,tcp_flags,size_bytes,counted_bytes,segments,\
    queue,found_packets,found_bytes,behind_packets,behind_bytes";

/// A packet as a line of CSV, without its end; what is not known is left empty.
#[must_use]
pub fn csv_line(packet: &Packet, reasons: &Reasons) -> String {
    let mut line = String::new();
    let or_empty = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let reason = match packet.is_dropped() {
        true => reasons.name(packet.reason),
        false => String::new(),
    };
    let ends = packet.ends.map_or_else(
        || ",,,,".to_owned(),
        |ends| {
            let (source, destination) = (ends.source, ends.destination);
            format!(
                "{},{},{},{},{}",
                ends.protocol,
                source.ip(),
                source.port(),
                destination.ip(),
                destination.port()
            )
        },
    );
    let lengths = [packet.found, packet.behind].map(|length| {
        length.map_or_else(
            || ",".to_owned(),
            |it| format!("{},{}", it.packets, it.bytes),
        )
    });
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        "{},{},{},{reason},{ends},{},{},{},{},{},{},{},{},{}",
        or_empty(packet.arrived_ns),
        or_empty(packet.left_ns),
        packet.fate.label(),
        packet.seq,
        packet.payload,
        packet.flags,
        packet.size,
        packet.counted,
        packet.segments,
        packet.queue,
        lengths[0],
        lengths[1],
    );
    line
}
