//! The list of connections, the page of one connection, and the help.

use pillion_bpf::Outcome;
use pillion_stats::report::number::{bytes, count, counted, millis, percent};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use super::view::{Round, Screen, View, id};
use crate::flows::{self, Connection, columns};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The lines of a table before its first row.
const HEADING: usize = 2;

pub fn draw(frame: &mut Frame, view: &mut View) {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title(view)).style(BOLD), top);
    frame.render_widget(Paragraph::new(keys(view)).style(DIM), bottom);
    match (view.screen, &view.chosen) {
        (Screen::Help, _) => frame.render_widget(Paragraph::new(HELP), middle),
        (Screen::Page, Some(chosen)) => draw_page(frame, middle, view, chosen),
        _ => list(frame, middle, view),
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
        title += &format!("   {} with \"{}\"", view.wanted().len(), view.filter);
    }
    if view.paused {
        title += "   PAUSED";
    }
    title
}

fn keys(view: &View) -> String {
    match view.screen {
        Screen::List => {
            "↑↓ choose   ←→ sort   r reverse   / filter   Enter one   ? help   q end".to_owned()
        }
        Screen::Filter => format!("filter: {}█   Enter keep   Esc none", view.filter),
        Screen::Help => "any key: back".to_owned(),
        Screen::Page => "Esc back   ↑↓ another   Space pause   q end".to_owned(),
    }
}

fn list(frame: &mut Frame, area: Rect, view: &mut View) {
    let wanted = view.wanted();
    if wanted.is_empty() {
        frame.render_widget(Paragraph::new(view.nothing()), area);
        return;
    }
    let rows = wanted.len();
    let flows::List { text, headings } = flows::list(&wanted, columns(), Some(area.width.into()));
    let place = view.place();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).map(Line::from).collect();
    lines[0] = std::mem::take(&mut lines[0]).style(BOLD);
    if let Some(place) = place {
        let chosen = &mut lines[HEADING + place];
        *chosen = std::mem::take(chosen).style(CHOSEN);
    }
    let heading: Vec<_> = lines.drain(..HEADING).collect();
    // The row of all together stays in sight.
    let all: Vec<_> = lines.drain(rows..).collect();
    let [above, body, below] = Layout::vertical([
        Constraint::Length(HEADING as u16),
        Constraint::Max(rows.try_into().unwrap_or(u16::MAX)),
        Constraint::Length(all.len() as u16),
    ])
    .areas(area);
    view.room = usize::from(body.height).max(1);
    view.headings = headings;
    if let Some(place) = place {
        view.first = view
            .first
            .clamp((place + 1).saturating_sub(view.room), place);
    }
    view.first = view.first.min(rows.saturating_sub(view.room));
    let seen: Vec<_> = lines.into_iter().skip(view.first).take(view.room).collect();
    frame.render_widget(Paragraph::new(heading), above);
    frame.render_widget(Paragraph::new(seen), body);
    frame.render_widget(Paragraph::new(all).style(BOLD), below);
}

const HELP: &str = "\
Keys
  ↑ ↓ PgUp PgDn Home End   choose a connection
  ← →                      sort by the column before or after
  r                        reverse the order
  /                        show only what has a text; Esc: all
  Enter                    one connection, with its last rounds
  Space                    pause
  q, Ctrl-C                end

Columns; the least important are left out where they do not fit
  loss           of the packets with data, those retransmitted or repaired by a bundle
  level          previous segments in a bundle at present
  bundled        new segments that carried a bundle
  redundant      what it costs: redundant bytes as a share of all payload
  hidden losses  segments lost that a bundle repaired
  saved          how much sooner bundles had them there than retransmissions would have, at least
  reactions      window reductions that the losses called for
  last segment   bundled, or why not
";

// One connection.

fn draw_page(frame: &mut Frame, area: Rect, view: &View, connection: &Connection) {
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
        let mut view = View::new(Order::by(0), String::new());
        view.take((5000..5000 + count).map(example).collect());
        view
    }

    #[test]
    fn a_list_has_every_connection_and_all_together() {
        let lines = screen(&mut view(3), 100, 20);
        assert!(lines[0].contains("3 connections"), "{lines:#?}");
        assert!(lines[1].contains("bundled"), "{lines:#?}");
        assert!(lines[5].contains(":5002"), "{lines:#?}");
        assert!(lines[6].contains("all together"), "{lines:#?}");
        assert!(lines[19].contains("q end"), "{lines:#?}");
    }

    #[test]
    fn the_chosen_one_stays_in_sight() {
        let mut view = view(200);
        view.key(KeyCode::Down.into());
        view.key(KeyCode::End.into());
        let lines = screen(&mut view, 100, 20);
        assert!(lines[17].contains(":5199"), "{lines:#?}");
        view.key(KeyCode::PageUp.into());
        let lines = screen(&mut view, 100, 20);
        assert!(
            lines.iter().any(|line| line.contains(":5184")),
            "{lines:#?}"
        );
        view.key(KeyCode::Home.into());
        assert!(screen(&mut view, 100, 20)[3].contains(":5000"));
    }

    #[test]
    fn any_size_of_a_terminal_is_borne_on_every_screen() {
        let mut view = view(30);
        view.key(KeyCode::Down.into());
        for screen_shown in [Screen::List, Screen::Filter, Screen::Help, Screen::Page] {
            view.screen = screen_shown;
            for width in [1, 2, 7, 40, 300] {
                for height in 1..30 {
                    assert_eq!(screen(&mut view, width, height).len(), usize::from(height));
                }
            }
        }
    }

    #[test]
    fn a_page_tells_what_became_of_segments() {
        let mut view = view(1);
        view.key(KeyCode::Enter.into());
        let text = screen(&mut view, 100, 40).join("\n");
        for said in ["192.0.2.1:5000", "198.51.100.1:443", "RTT", "not bundled"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        view.take(Vec::new());
        assert!(screen(&mut view, 100, 40).join("\n").contains("has ended"));
    }
}
