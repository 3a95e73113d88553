//! Options of measures, and the story of a message in words.

use std::fmt::Write;
use std::time::Duration;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;
use pillion_lab::analysis::{Arrived, Copied, Event, Seen, Story, Trace, Waited, What};
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::{Group, Options};

/// What is measured, and how it is put together.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measures")]
pub struct Measured {
    /// Percentiles in the summary and the report, from 0 to 100 [default: 50,90,97,99,99.9]
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        value_parser = parse_percentile
    )]
    pub percentiles: Option<Vec<f64>>,

    /// Measure connections together as well, by an end of theirs; may be repeated
    ///
    /// A condition is ADDRESS[/PREFIX], :PORT, :PORT-PORT or ADDRESS:PORT, and holds if either end
    /// is so; with `from:` before it only the end that opened the connection counts, with `to:`
    /// only the other.
    #[arg(long, value_name = "NAME=CONDITION,...")]
    group: Vec<Group>,

    /// The width of slices of time, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_slice)]
    slice: Duration,

    /// What each connection is due, headers included, for Jain's fairness index: in bit/s, with k,
    /// M or G; for the connections of one group as GROUP=RATE, may be repeated
    #[arg(long, value_name = "[GROUP=]RATE", value_parser = parse_optimum)]
    optimum: Vec<Optimum>,
}

#[derive(Debug, Clone, PartialEq)]
struct Optimum {
    group: Option<String>,
    bit_per_s: f64,
}

/// The percentiles that are shown unless others are asked for.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 97.0, 99.0, 99.9];

impl Measured {
    pub fn percentiles(self) -> Vec<f64> {
        self.percentiles.unwrap_or_else(|| PERCENTILES.to_vec())
    }

    pub fn options(&self) -> Result<Options, BadInput> {
        let names = || self.group.iter().map(|group| &group.name);
        for (place, name) in names().enumerate() {
            if names().take(place).any(|earlier| earlier == name) {
                let mistake = format!("two groups are called `{name}`; give each its own name");
                return Err(BadInput(mistake));
            }
        }
        let mut options = Options {
            slice_ns: i64::try_from(self.slice.as_nanos()).unwrap_or(i64::MAX),
            groups: self.group.clone(),
            ..Options::default()
        };
        for Optimum { group, bit_per_s } in &self.optimum {
            match group {
                None => options.optimum_bit_per_s = Some(*bit_per_s),
                Some(group) if names().any(|name| name == group) => {
                    options.optimum_of_group.push((group.clone(), *bit_per_s));
                }
                Some(group) => {
                    let mistake = format!("--optimum: no --group is called `{group}`");
                    return Err(BadInput(mistake));
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

/// A shorter slice than a microsecond would hold no more than one packet.
fn parse_slice(text: &str) -> Result<Duration, BadInput> {
    let width = parse_duration(text)?;
    if width < Duration::from_micros(1) {
        return Err("expected at least 0.000001 s".into());
    }
    Ok(width)
}

fn parse_optimum(text: &str) -> Result<Optimum, String> {
    let (group, rate) = match text.rsplit_once('=') {
        Some((group, rate)) => (Some(group.to_owned()), rate),
        None => (None, text),
    };
    let bit_per_s = parse_rate(rate)
        .ok_or_else(|| format!("`{rate}` is no rate in bit/s, such as 9600, 9.6k or 10M"))?;
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

/// Ranges behind that are shown one by one.
const MOST_WAITED: usize = 10;

/// The story for people.
pub fn story_text(story: &Story, traces: &[Trace]) -> String {
    let mut text = heading(story);
    text += &table(story, traces).to_text();
    text += &outcome(story);
    if !story.waited_behind.is_empty() {
        text += &waited(&story.waited_behind);
    }
    text
}

fn heading(story: &Story) -> String {
    let bytes = span(story.begin, story.end);
    let mut text = format!(
        "connection {}, {} to {}: {bytes}",
        story.connection, story.sender, story.receiver
    );
    if let Some(raw) = story.raw_seq {
        let _ = write!(text, ", on the wire from {raw}");
    }
    if let Some(first) = story.first_sent_s {
        let seconds = number::seconds(first);
        let _ = write!(text, "\nfirst sent {seconds} s after the trace's beginning");
    }
    text + "\n"
}

fn table(story: &Story, traces: &[Trace]) -> Table {
    let both = traces.len() > 1;
    let name = |index: usize| traces.get(index).map_or("", Trace::file_name);
    let (sender, receiver) = if story.from_first { (0, 1) } else { (1, 0) };
    let mut columns = vec![Column::right("ms")];
    if both {
        columns.push(Column::right(format!("packet in {}", name(sender))));
        columns.push(Column::right(format!("in {}", name(receiver))));
    } else {
        columns.push(Column::right("packet"));
    }
    columns.push(Column::left(""));
    let mut table = Table::new("", columns);
    for event in &story.events {
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
            cells.extend([seen(Seen::Sender), seen(Seen::Receiver)]);
        } else {
            cells.push(packet);
        }
        cells.push(sentence(event, story));
        table.row(cells);
    }
    table
}

fn sentence(event: &Event, story: &Story) -> String {
    match event.what {
        What::Sent {
            begin,
            end,
            copy,
            fate,
        } => {
            let how = match copy {
                Copied::New if begin == story.begin && end == story.end => "sent".to_owned(),
                Copied::New => format!("sent, in a packet of {}", span(begin, end)),
                Copied::Bundled => {
                    format!("sent again, bundled into a packet of {}", span(begin, end))
                }
                Copied::Retransmitted if begin == story.begin && end == story.end => {
                    "retransmitted".to_owned()
                }
                Copied::Retransmitted => {
                    format!("retransmitted, in a packet of {}", span(begin, end))
                }
            };
            let fate = match fate {
                Some(Arrived::Lost) => ": lost",
                Some(Arrived::Unseen) => ": it arrived, when is not known",
                Some(Arrived::Unknown) => ": whether it arrived cannot be told",
                Some(Arrived::Delivered) | None => "",
            };
            how + fate
        }
        What::Arrived { sent_as, first } => {
            let which = sent_as.map_or_else(
                || "in a packet that was not sent like that".to_owned(),
                |packet| format!("as packet {packet} of the sender"),
            );
            if first {
                format!("arrived, {which}")
            } else {
                format!("arrived again, {which}: was there already")
            }
        }
        What::Readable => "readable: all before it has arrived".to_owned(),
        What::DuplicateAck => "duplicate ACK that asks for it".to_owned(),
        What::Sacked => "selectively acknowledged (SACK)".to_owned(),
        What::Acked => "acknowledged".to_owned(),
        What::Dsack => "reported as received twice (DSACK)".to_owned(),
    }
}

fn outcome(story: &Story) -> String {
    let mut text = String::new();
    let after = |ms: Option<f64>, what: &str| {
        let ms = number::millis(ms?);
        Some(format!("{what} {ms} ms after it was first sent\n"))
    };
    text += &after(story.application_latency_ms, "readable").unwrap_or_default();
    text += &after(story.ack_latency_ms, "acknowledged").unwrap_or_default();
    if story.ack_latency_ms.is_none() {
        text += "the trace shows no acknowledgement of it\n";
    }
    if let Some(missing) = story.waited_for {
        let _ = writeln!(text, "it had to wait for byte {missing}, which was missing");
    }
    text
}

fn waited(behind: &[Waited]) -> String {
    let bytes = behind
        .iter()
        .map(|range| range.end - range.begin)
        .sum::<i64>();
    let mut text = format!(
        "{} behind it ({bytes} bytes) had arrived before it and waited:\n",
        number::counted(behind.len() as u64, "range")
    );
    for range in behind.iter().take(MOST_WAITED) {
        let (bytes, ms) = (span(range.begin, range.end), number::millis(range.ms));
        let _ = writeln!(text, "  {bytes}: {ms} ms");
    }
    if let Some(more) = behind
        .len()
        .checked_sub(MOST_WAITED)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(text, "  and {more} more; --json has them all");
    }
    text
}

fn span(begin: i64, end: i64) -> String {
    match end - begin {
        1 => format!("byte {begin}"),
        _ => format!("bytes {begin} to {}", end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimum_is_of_all_or_of_a_group() {
        let optimum = |group: Option<&str>, bit_per_s| Optimum {
            group: group.map(str::to_owned),
            bit_per_s,
        };
        assert_eq!(parse_optimum("9600"), Ok(optimum(None, 9600.0)));
        assert_eq!(
            parse_optimum("thin=9.6k"),
            Ok(optimum(Some("thin"), 9600.0))
        );
        for mistake in ["", "0", "-1k", "fast", "thin=", "1T", "inf"] {
            assert!(parse_optimum(mistake).is_err(), "{mistake}");
        }
    }
}
