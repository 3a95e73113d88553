//! Screens of `pillion top`: list, details of a connection, and help.

use pillion_bpf::Outcome;
use pillion_stats::report::number::{bytes, count, counted, millis, percent};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use super::view::{Sample, Screen, View, id};
use crate::flows::{self, Connection, columns};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Heading lines of a table, before its first row.
const HEADING_LINES: usize = 2;

pub fn draw(frame: &mut Frame, view: &mut View) {
    let holdbacks = view.holdbacks.join("\n");
    let [top, middle, below, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Max(view.holdbacks.len().try_into().unwrap_or(u16::MAX)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title(view)).style(BOLD), top);
    frame.render_widget(Paragraph::new(holdbacks), below);
    frame.render_widget(Paragraph::new(keys(view)).style(DIM), bottom);
    match (view.screen, &view.selected) {
        (Screen::Help, _) => frame.render_widget(Paragraph::new(HELP), middle),
        (Screen::Details, Some(selected)) => draw_details(frame, middle, view, selected),
        _ => list(frame, middle, view),
    }
    if view.is_ascii_only {
        for cell in &mut frame.buffer_mut().content {
            let symbol = cell.symbol().chars().next().unwrap_or(' ');
            cell.set_char(ascii(symbol));
        }
    }
}

/// Returns an ASCII character that looks similar, or `?`.
pub fn ascii(symbol: char) -> char {
    match symbol {
        '─' | '–' => '-',
        '↑' => '^',
        '↓' => 'v',
        '←' => '<',
        '→' => '>',
        '▁' | '▂' => '_',
        '▃' | '▄' | '▅' => '=',
        '▆' | '▇' | '█' => '#',
        symbol if symbol.is_ascii() => symbol,
        _ => '?',
    }
}

fn title(view: &View) -> String {
    let sorted = &columns()[view.order.column].column.header;
    let reversed = if view.order.reversed {
        ", reversed"
    } else {
        ""
    };
    let mut title = format!(
        "pillion top   {}   sorted by {sorted}{reversed}",
        counted(view.connections.len() as u64, "connection"),
    );
    if !view.filter.is_empty() {
        title += &format!("   {} match \"{}\"", view.visible().len(), view.filter);
    }
    if view.paused {
        title += "   PAUSED";
    }
    title
}

fn keys(view: &View) -> String {
    match view.screen {
        Screen::List => {
            "↑↓ select   ←→ sort   r reverse   / filter   Enter details   ? help   q quit"
                .to_owned()
        }
        Screen::Filter => format!("filter: {}█   Enter apply   Esc clear", view.filter),
        Screen::Help => "any key: back".to_owned(),
        Screen::Details => "Esc back   ↑↓ select   Space pause   q quit".to_owned(),
    }
}

fn list(frame: &mut Frame, area: Rect, view: &mut View) {
    let visible = view.visible();
    if visible.is_empty() {
        frame.render_widget(Paragraph::new(view.empty_message()), area);
        return;
    }
    let rows = visible.len();
    let totals = u16::from(rows > 1);
    let [above, body, below] = Layout::vertical([
        Constraint::Length(HEADING_LINES as u16),
        Constraint::Max(rows.try_into().unwrap_or(u16::MAX)),
        Constraint::Length(totals),
    ])
    .areas(area);
    let page = usize::from(body.height).max(1);
    let position = view.position();
    let mut first = view.scroll_offset;
    if let Some(position) = position {
        first = first.clamp((position + 1).saturating_sub(page), position);
    }
    first = first.min(rows.saturating_sub(page));
    // Only the rows on the screen are formatted: thousands of connections would cost much time.
    let shown = first..rows.min(first + page);
    let width = Some(area.width.into());
    let flows::List { text, headings } = flows::list(&visible, columns(), width, shown.clone());
    let mut lines: Vec<_> = text.lines().map(str::to_owned).map(Line::from).collect();
    lines[0] = std::mem::take(&mut lines[0]).style(BOLD);
    if let Some(position) = position {
        let selected = &mut lines[HEADING_LINES + position - first];
        *selected = std::mem::take(selected).style(SELECTED);
    }
    let heading: Vec<_> = lines.drain(..HEADING_LINES).collect();
    // The row of totals stays visible while the list scrolls.
    let totals: Vec<_> = lines.drain(shown.len()..).collect();
    view.page_height = page;
    view.scroll_offset = first;
    view.headings = headings;
    frame.render_widget(Paragraph::new(heading), above);
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Paragraph::new(totals).style(BOLD), below);
}

const HELP: &str = "\
Keys
  ↑ ↓ PgUp PgDn Home End   select a connection
  ← →                      sort by the previous or next column
  r                        reverse the order
  /                        show only connections with a text; Esc: all
  Enter                    details of a connection, with its history
  Space                    pause
  q, Ctrl-C                quit

Columns (the least important ones are omitted if the terminal is narrow)
  loss           share of data packets that were retransmitted or repaired by a bundle
  level          previous segments in a bundle at present
  bundled        new segments with a bundle
  redundant      redundant bytes as a share of all payload
  hidden losses  lost segments that a bundle repaired
  saved          time that bundles saved compared to retransmissions, at least
  reactions      window reductions requested for hidden losses
  last segment   outcome: bundled, or the reason why not
";

// Details of a connection.

fn draw_details(frame: &mut Frame, area: Rect, view: &View, connection: &Connection) {
    let id = id(&connection.flow);
    let samples: Vec<&Sample> = view.history.samples(&id).collect();
    let mut facts = facts(connection);
    if samples.is_empty() {
        facts.insert(
            0,
            Line::styled("This connection has ended; its last state:", BOLD),
        );
    }
    let height = facts.len().try_into().unwrap_or(u16::MAX);
    let [above, below] =
        Layout::vertical([Constraint::Max(height), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(facts), above);
    let lines = [
        line(
            "RTT, ms",
            &samples,
            |it| it.rtt_us,
            |us| millis(us as f64 / 1e3),
        ),
        line("segments", &samples, |it| it.segments, count),
        line("bundled", &samples, |it| it.bundled, count),
        line("retransmitted or repaired", &samples, |it| it.lost, count),
    ];
    let areas = Layout::vertical([Constraint::Max(4); 4]).split(below);
    for ((title, data), area) in lines.into_iter().zip(areas.iter()) {
        let [heading, graph] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(*area);
        // The newest samples that fit, aligned to the right.
        let newest = data.len().saturating_sub(graph.width.into());
        frame.render_widget(Paragraph::new(title).style(BOLD), heading);
        frame.render_widget(Sparkline::default().data(&data[newest..]), graph);
    }
}

/// Returns title and values of a sparkline.
fn line(
    name: &str,
    samples: &[&Sample],
    of: fn(&Sample) -> u64,
    show: impl Fn(u64) -> String,
) -> (String, Vec<u64>) {
    let values: Vec<_> = samples.iter().map(|sample| of(sample)).collect();
    let (now, max) = (values.last(), values.iter().max());
    let [now, max] = [now, max].map(|it| show(it.copied().unwrap_or(0)));
    (
        format!("{name}, per interval: now {now}, maximum {max}"),
        values,
    )
}

fn facts(connection: &Connection) -> Vec<Line<'static>> {
    let flow = &connection.flow;
    let counters = &flow.counters;
    let shown = |name: &str| {
        let column = columns().into_iter().find(|it| it.column.header == name);
        column.map_or_else(String::new, |it| (it.cell)(connection).text().to_owned())
    };
    let of = |name: &str, value: String| (!value.is_empty()).then(|| format!("{name} {value}"));
    let pid = connection.pid.map(|pid| format!("PID {pid}"));
    let owner = [
        of("process", shown("process")),
        pid,
        connection.unit.clone(),
        Some(format!("network namespace {}", connection.namespace)),
    ];
    let owner = owner.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        Line::styled(format!("{} > {}", flow.local, flow.peer), BOLD),
        Line::from(owner),
        Line::from(format!(
            "requested by {}; level {}; MSS {} B; window {} packets, {} in flight",
            shown("requested by"),
            flow.level,
            flow.mss,
            flow.snd_cwnd,
            flow.in_flight
        )),
        Line::from(format!(
            "RTT {} ms, minimum {} ms; loss {}; {} packets with data, {} retransmitted",
            shown("RTT"),
            shown("min RTT"),
            shown("loss"),
            count(flow.data_packets.into()),
            count(flow.retransmitted_packets.into()),
        )),
        Line::from(format!(
            "saved {} ms; hidden losses {}; reactions {}; reordered {}",
            shown("saved"),
            count(counters.hidden_losses),
            count(counters.reactions),
            count(counters.reordered),
        )),
        Line::from(format!(
            "cost {} of redundant bytes, {} of all payload",
            bytes(counters.redundant_bytes as f64),
            percent(counters.bundled_share()),
        )),
        Line::from(format!(
            "{} new segments, {} bundled; not bundled:",
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

#[cfg(test)]
mod tests {
    use crossterm::event::KeyCode;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;

    use super::*;
    use crate::flows::example;
    use crate::top::view::Order;

    fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(width.into());
        let text = rows.map(|row| row.iter().map(Cell::symbol).collect());
        text.collect()
    }

    fn view(count: u16) -> View {
        let mut view = View::new(Order::by_column(0), String::new());
        view.update((5000..5000 + count).map(example).collect());
        view
    }

    #[test]
    fn list_shows_connections_and_totals() {
        let mut view = view(3);
        view.holdbacks.push("holdback 5% of rule 1".to_owned());
        let lines = screen(&mut view, 100, 20);
        assert!(lines[18].contains("holdback 5%"), "{lines:#?}");
        assert!(lines[0].contains("3 connections"), "{lines:#?}");
        assert!(lines[1].contains("bundled"), "{lines:#?}");
        assert!(lines[5].contains(":5002"), "{lines:#?}");
        assert!(lines[6].contains("total"), "{lines:#?}");
        assert!(lines[19].contains("q quit"), "{lines:#?}");
    }

    #[test]
    fn narrow_list_shows_loss_cost_and_saved_time() {
        let mut view = view(30);
        for (index, connection) in view.connections.iter_mut().enumerate() {
            let flow = &mut connection.flow;
            flow.local = ([203, 0, 113, 100], 50_000 + index as u16).into();
            flow.peer = ([198, 51, 100, 200], 60_000).into();
            (flow.data_packets, flow.retransmitted_packets) = (1000, 42);
            (flow.counters.new_bytes, flow.counters.redundant_bytes) = (100, 99);
            flow.counters.time_saved_us = 1_234_567_000;
        }
        let lines = screen(&mut view, 80, 24);
        for column in ["peer", "local", "loss", "redundant", "saved, ms"] {
            assert!(lines[1].contains(column), "{column}: {lines:#?}");
        }
        assert!(lines[3].contains("4.2 %"), "{lines:#?}");
        assert!(lines[22].trim_start().starts_with("total"), "{lines:#?}");
    }

    #[test]
    fn ascii_screens_have_ascii_only() {
        let mut view = view(30);
        view.connections[0].process = Some("jeu-é".to_owned());
        view.is_ascii_only = true;
        view.handle_key(KeyCode::Down.into());
        for screen_shown in [Screen::List, Screen::Filter, Screen::Help, Screen::Details] {
            view.screen = screen_shown;
            let lines = screen(&mut view, 200, 40);
            assert!(lines.iter().all(|it| it.is_ascii()), "{lines:#?}");
        }
        view.screen = Screen::List;
        assert!(screen(&mut view, 200, 40)[3].contains("jeu-?"));
    }

    #[test]
    fn selected_row_stays_visible() {
        let mut view = view(200);
        view.handle_key(KeyCode::Down.into());
        view.handle_key(KeyCode::End.into());
        let lines = screen(&mut view, 100, 20);
        assert!(lines[17].contains(":5199"), "{lines:#?}");
        view.handle_key(KeyCode::PageUp.into());
        let lines = screen(&mut view, 100, 20);
        assert!(
            lines.iter().any(|line| line.contains(":5184")),
            "{lines:#?}"
        );
        view.handle_key(KeyCode::Home.into());
        assert!(screen(&mut view, 100, 20)[3].contains(":5000"));
    }

    #[test]
    fn every_screen_draws_at_any_terminal_size() {
        let mut view = view(30);
        view.handle_key(KeyCode::Down.into());
        for screen_shown in [Screen::List, Screen::Filter, Screen::Help, Screen::Details] {
            view.screen = screen_shown;
            for width in [1, 2, 7, 40, 300] {
                for height in 1..30 {
                    assert_eq!(screen(&mut view, width, height).len(), usize::from(height));
                }
            }
        }
    }

    #[test]
    fn details_show_outcomes_of_segments() {
        let mut view = view(1);
        view.handle_key(KeyCode::Enter.into());
        let text = screen(&mut view, 100, 40).join("\n");
        for expected in ["192.0.2.1:5000", "198.51.100.1:443", "RTT", "not bundled"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        view.update(Vec::new());
        assert!(screen(&mut view, 100, 40).join("\n").contains("has ended"));
    }
}
