//! One connection.

use pillion_bpf::Outcome;
use pillion_stats::report::number::{bytes, count, millis, percent};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use super::history::{Round, id};
use super::view::View;
use crate::flows::{Connection, columns};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub fn draw(frame: &mut Frame, area: Rect, view: &View, connection: &Connection) {
    let id = id(&connection.flow);
    let rounds: Vec<&Round> = view.history.of(&id).collect();
    let mut facts = facts(connection);
    if rounds.is_empty() {
        facts.insert(
            0,
            Line::styled("It has ended; this is how it was last.", BOLD),
        );
    }
    let height = facts.len().try_into().unwrap_or(u16::MAX);
    let [above, below] =
        Layout::vertical([Constraint::Max(height), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(facts), above);
    let lines = [
        line(
            "RTT, ms",
            &rounds,
            |it| it.rtt_us,
            |us| millis(us as f64 / 1e3),
        ),
        line("segments", &rounds, |it| it.segments, count),
        line("bundled", &rounds, |it| it.bundled, count),
        line("retransmitted or repaired", &rounds, |it| it.lost, count),
    ];
    let places = Layout::vertical([Constraint::Max(4); 4]).split(below);
    for ((title, data), place) in lines.into_iter().zip(places.iter()) {
        let [heading, graph] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(*place);
        // The newest that there is room for, at the right end.
        let newest = data.len().saturating_sub(graph.width.into());
        frame.render_widget(Paragraph::new(title).style(BOLD), heading);
        frame.render_widget(Sparkline::default().data(&data[newest..]), graph);
    }
}

/// A sparkline's title and values.
fn line(
    name: &str,
    rounds: &[&Round],
    of: fn(&Round) -> u64,
    show: impl Fn(u64) -> String,
) -> (String, Vec<u64>) {
    let values: Vec<_> = rounds.iter().map(|round| of(round)).collect();
    let (now, most) = (values.last(), values.iter().max());
    let [now, most] = [now, most].map(|it| show(it.copied().unwrap_or(0)));
    (
        format!("{name} of each round: now {now}, at most {most}"),
        values,
    )
}

fn facts(connection: &Connection) -> Vec<Line<'static>> {
    let flow = &connection.flow;
    let counters = &flow.counters;
    let shown = |name: &str| {
        let column = columns().into_iter().find(|it| it.column.header == name);
        column.map_or_else(String::new, |it| (it.of)(connection).text().to_owned())
    };
    let of = |name: &str, value: String| (!value.is_empty()).then(|| format!("{name} {value}"));
    let pid = connection.pid.map(|pid| format!("PID {pid}"));
    let who = [
        of("process", shown("process")),
        pid,
        connection.unit.clone(),
        Some(format!("network namespace {}", connection.namespace)),
    ];
    let who = who.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        Line::styled(format!("{} > {}", flow.local, flow.peer), BOLD),
        Line::from(who),
        Line::from(format!(
            "wanted by {}; level {}; MSS {} B; window {} packets, {} in flight",
            shown("wanted by"),
            flow.level,
            flow.mss,
            flow.snd_cwnd,
            flow.in_flight
        )),
        Line::from(format!(
            "RTT {} ms, at least {} ms; loss {}; {} packets with data, {} retransmitted",
            shown("RTT"),
            shown("min RTT"),
            shown("loss"),
            count(flow.data_packets.into()),
            count(flow.retransmitted.into()),
        )),
        Line::from(format!(
            "saved {} ms; hidden losses {}; reactions {}; late though deemed lost {}",
            shown("saved"),
            count(counters.hidden_losses),
            count(counters.reactions),
            count(counters.reordered),
        )),
        Line::from(format!(
            "cost {} of redundant bytes, {} of the payload",
            bytes(counters.redundant_bytes as f64),
            percent(counters.bundled_share()),
        )),
        Line::from(format!(
            "of {} new segments {} bundled; not bundled:",
            count(counters.segments()),
            count(counters.of(Outcome::Bundled)),
        )),
    ];
    let reasons = counters.not_bundled().into_iter();
    lines.extend(reasons.map(|(outcome, segments)| {
        Line::from(format!("  {:>9}  {}", count(segments), outcome.label()))
    }));
    lines.push(Line::default());
    lines
}
