//! Options of measures, and the timeline of a byte range as text.

use std::fmt::Write;
use std::time::Duration;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;
use pillion_lab::analysis::{
    BlockedRange, CopyReason, Event, EventKind, PacketDisposition, Timeline, Trace, TraceSide,
};
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::{Group, MeterOptions};

/// Options of measures.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measures")]
pub struct MeasureArgs {
    /// Percentiles in the summary and the report, from 0 to 100 [default: 50,90,97,99,99.9]
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        value_parser = parse_percentile
    )]
    pub percentiles: Option<Vec<f64>>,

    /// Also measure these connections together; may be repeated
    ///
    /// A condition is ADDRESS[/PREFIX], :PORT, :PORT-PORT or ADDRESS:PORT, and applies to either
    /// end. With the prefix `from:` it applies to the end that opened the connection, with `to:` to
    /// the other one.
    #[arg(long, value_name = "NAME=CONDITION,...")]
    group: Vec<Group>,

    /// Width of slices of time, at least 1us
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_slice)]
    slice: Duration,

    /// Optimum rate of each connection for Jain's fairness index, with headers: bit/s, or with k, M
    /// or G; GROUP=RATE for one group, may be repeated
    #[arg(long, value_name = "[GROUP=]RATE", value_parser = parse_optimum)]
    optimum: Vec<Optimum>,
}

#[derive(Debug, Clone, PartialEq)]
struct Optimum {
    group: Option<String>,
    bit_per_s: f64,
}

/// Default percentiles.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 97.0, 99.0, 99.9];

impl MeasureArgs {
    pub fn percentiles(self) -> Vec<f64> {
        self.percentiles.unwrap_or_else(|| PERCENTILES.to_vec())
    }

    pub fn options(&self) -> Result<MeterOptions, BadInput> {
        let names = || self.group.iter().map(|group| &group.name);
        for (index, name) in names().enumerate() {
            if names().take(index).any(|earlier| earlier == name) {
                let reason = format!("duplicate --group `{name}`; give each group its own name");
                return Err(BadInput(reason));
            }
        }
        let mut options = MeterOptions {
            slice_ns: i64::try_from(self.slice.as_nanos()).unwrap_or(i64::MAX),
            groups: self.group.clone(),
            ..MeterOptions::default()
        };
        for Optimum { group, bit_per_s } in &self.optimum {
            match group {
                None => options.optimum_bit_per_s = Some(*bit_per_s),
                Some(group) if names().any(|name| name == group) => {
                    options.optimum_of_group.push((group.clone(), *bit_per_s));
                }
                Some(group) => {
                    let reason = format!("--optimum: unknown group `{group}`; add it with --group");
                    return Err(BadInput(reason));
                }
            }
        }
        Ok(options)
    }
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    let percentile = text.parse().ok();
    let percentile = percentile.filter(|p: &f64| (0.0..=100.0).contains(p));
    percentile.ok_or_else(|| "expected percentiles from 0 to 100, as in 50,99.9".to_owned())
}

/// A slice below 1us has at most one packet.
fn parse_slice(text: &str) -> Result<Duration, BadInput> {
    let width = parse_duration(text)?;
    if width < Duration::from_micros(1) {
        return Err("expected at least 1us".into());
    }
    Ok(width)
}

fn parse_optimum(text: &str) -> Result<Optimum, String> {
    let (group, rate) = match text.rsplit_once('=') {
        Some((group, rate)) => (Some(group.to_owned()), rate),
        None => (None, text),
    };
    let bit_per_s = parse_rate(rate)
        .ok_or_else(|| format!("invalid rate `{rate}`: expected bit/s, as in 9600, 9.6k or 10M"))?;
    Ok(Optimum { group, bit_per_s })
}

fn parse_rate(text: &str) -> Option<f64> {
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, unit) = match unit {
        Some((letter, unit)) => (text.strip_suffix(*letter)?, *unit),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * unit;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Maximum ranges to list that arrived but had to wait.
const MAX_LISTED_RANGES: usize = 10;

/// Formats the timeline.
pub fn timeline_text(timeline: &Timeline, traces: &[Trace]) -> String {
    let mut text = heading(timeline);
    text += &table(timeline, traces).to_text();
    text += &outcome(timeline);
    if !timeline.blocked_ranges.is_empty() {
        text += &waited(&timeline.blocked_ranges);
    }
    text
}

fn heading(timeline: &Timeline) -> String {
    let bytes = span(timeline.start, timeline.end);
    let mut text = format!(
        "connection {}, {} to {}: {bytes}",
        timeline.connection, timeline.sender, timeline.receiver
    );
    if let Some(raw) = timeline.raw_seq {
        let _ = write!(text, ", on the wire from {raw}");
    }
    if let Some(first) = timeline.first_sent_s {
        let seconds = number::seconds(first);
        let _ = write!(
            text,
            "\nfirst sent {seconds} s after the start of the trace"
        );
    }
    text + "\n"
}

fn table(timeline: &Timeline, traces: &[Trace]) -> Table {
    let both = traces.len() > 1;
    let name = |index: usize| traces.get(index).map_or("", Trace::file_name);
    let (sender, receiver) = if timeline.from_first { (0, 1) } else { (1, 0) };
    let mut columns = vec![Column::right("ms")];
    if both {
        columns.push(Column::right(format!("packet in {}", name(sender))));
        columns.push(Column::right(format!("in {}", name(receiver))));
    } else {
        columns.push(Column::right("packet"));
    }
    columns.push(Column::left(""));
    let mut table = Table::new("", columns);
    for event in &timeline.events {
        let packet = event.packet.map(|packet| packet.to_string());
        let packet = packet.unwrap_or_default();
        let mut cells = vec![number::millis(event.ms)];
        if both {
            let seen = |at| {
                if event.seen_at == at {
                    packet.clone()
                } else {
                    " ".into()
                }
            };
            cells.extend([seen(TraceSide::Sender), seen(TraceSide::Receiver)]);
        } else {
            cells.push(packet);
        }
        cells.push(sentence(event, timeline));
        table.row(cells);
    }
    table
}

fn sentence(event: &Event, timeline: &Timeline) -> String {
    match event.kind {
        EventKind::Sent {
            start,
            end,
            copy,
            disposition,
        } => {
            let how = match copy {
                CopyReason::New if start == timeline.start && end == timeline.end => {
                    "sent".to_owned()
                }
                CopyReason::New => format!("sent, in a packet of {}", span(start, end)),
                CopyReason::Bundled => {
                    format!("sent again, bundled into a packet of {}", span(start, end))
                }
                CopyReason::Retransmitted if start == timeline.start && end == timeline.end => {
                    "retransmitted".to_owned()
                }
                CopyReason::Retransmitted => {
                    format!("retransmitted, in a packet of {}", span(start, end))
                }
            };
            let arrival = match disposition {
                Some(PacketDisposition::Lost) => ": lost",
                Some(PacketDisposition::Unseen) => ": arrived at an unknown time",
                Some(PacketDisposition::Unknown) => ": arrival unknown",
                Some(PacketDisposition::Delivered) | None => "",
            };
            how + arrival
        }
        EventKind::Arrived { sent_as, first } => {
            let which = sent_as.map_or_else(
                || "in a packet that differs from all sent ones, or equals several".to_owned(),
                |packet| format!("as packet {packet} of the sender"),
            );
            if first {
                format!("arrived, {which}")
            } else {
                format!("arrived again, {which}: duplicate")
            }
        }
        EventKind::Readable => "readable: all previous bytes have arrived".to_owned(),
        EventKind::DuplicateAck => "duplicate ACK that requests it".to_owned(),
        EventKind::Sacked => "selectively acknowledged (SACK)".to_owned(),
        EventKind::Acked => "acknowledged".to_owned(),
        EventKind::Dsack => "reported as received twice (DSACK)".to_owned(),
    }
}

fn outcome(timeline: &Timeline) -> String {
    let mut text = String::new();
    let after = |ms: Option<f64>, what: &str| {
        let ms = number::millis(ms?);
        Some(format!("{what} {ms} ms after it was first sent\n"))
    };
    text += &after(timeline.application_latency_ms, "readable").unwrap_or_default();
    text += &after(timeline.ack_latency_ms, "acknowledged").unwrap_or_default();
    if timeline.ack_latency_ms.is_none() {
        text += "not acknowledged in the trace\n";
    }
    if let Some(missing) = timeline.waited_for {
        let _ = writeln!(text, "it waited for the missing byte {missing}");
    }
    text
}

fn waited(behind: &[BlockedRange]) -> String {
    let bytes = behind
        .iter()
        .map(|range| range.end - range.start)
        .sum::<i64>();
    let mut text = format!(
        "{} after it ({bytes} bytes) had arrived before it and waited:\n",
        number::counted(behind.len() as u64, "range")
    );
    for range in behind.iter().take(MAX_LISTED_RANGES) {
        let (bytes, ms) = (span(range.start, range.end), number::millis(range.ms));
        let _ = writeln!(text, "  {bytes}: {ms} ms");
    }
    if let Some(more) = behind
        .len()
        .checked_sub(MAX_LISTED_RANGES)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(text, "  and {more} more; --json shows all");
    }
    text
}

fn span(start: i64, end: i64) -> String {
    match end - start {
        1 => format!("byte {start}"),
        _ => format!("bytes {start} to {}", end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimum_applies_to_all_or_one_group() {
        let optimum = |group: Option<&str>, bit_per_s| Optimum {
            group: group.map(str::to_owned),
            bit_per_s,
        };
        assert_eq!(parse_optimum("9600"), Ok(optimum(None, 9600.0)));
        assert_eq!(
            parse_optimum("thin=9.6k"),
            Ok(optimum(Some("thin"), 9600.0))
        );
        for reason in ["", "0", "-1k", "fast", "thin=", "1T", "inf"] {
            assert!(parse_optimum(reason).is_err(), "{reason}");
        }
    }
}
