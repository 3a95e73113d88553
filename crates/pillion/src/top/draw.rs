//! The list of connections, and the help.

use pillion_stats::report::number::counted;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::page;
use super::view::{Screen, View};
use crate::flows::{self, columns};

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
        (Screen::Page, Some(chosen)) => page::draw(frame, middle, view, chosen),
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
