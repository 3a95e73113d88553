use std::fmt::Write;

use pillion_lab::analysis::{Arrived, Copied, Event, Seen, Story, Trace, Waited, What};
use pillion_stats::report::{Column, Table, number};

/// Ranges behind that are shown one by one.
const MOST_WAITED: usize = 10;

/// The story for people.
pub fn text(story: &Story, traces: &[Trace]) -> String {
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
