//! What is looked at, and what keys make of it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pillion_bpf::{Flow, Outcome};

use crate::flows::{Cell, Connection, columns};

/// By which column it is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub column: usize,
    /// Numbers fall and words rise, unless this is set.
    pub reversed: bool,
}

impl Order {
    pub fn by(column: usize) -> Self {
        Self {
            column,
            reversed: false,
        }
    }

    fn sort(self, connections: &mut [Connection]) {
        let of = columns()[self.column].of;
        connections.sort_by(|a, b| {
            let (a, b) = (of(a), of(b));
            let falls = matches!(a, Cell::Number { .. });
            match falls != self.reversed {
                true => b.compare(&a),
                false => a.compare(&b),
            }
        });
    }
}

/// What the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    List,
    /// The list, while the filter is being typed.
    Filter,
    Help,
    /// One connection.
    Page,
}

/// What follows from a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    GoOn,
    End,
}

/// The connections, and what is looked at.
pub struct View {
    pub connections: Vec<Connection>,
    pub history: History,
    pub order: Order,
    pub filter: String,
    pub screen: Screen,
    /// The connection that is chosen; as it was last, if it has ended.
    pub chosen: Option<Connection>,
    pub paused: bool,
    /// The first line of the list that is seen.
    pub first: usize,
    /// How many lines of the list there were room for.
    pub room: usize,
    /// The headings of the columns that there was room for.
    pub headings: Vec<String>,
}

impl View {
    pub fn new(order: Order, filter: String) -> Self {
        Self {
            connections: Vec::new(),
            history: History::default(),
            order,
            filter,
            screen: Screen::List,
            chosen: None,
            paused: false,
            first: 0,
            room: 1,
            headings: Vec::new(),
        }
    }

    /// Takes note of a round.
    pub fn take(&mut self, connections: Vec<Connection>) {
        self.history.take(&connections);
        self.list(connections);
    }

    /// Shows a round, and remembers nothing of it.
    pub fn list(&mut self, mut connections: Vec<Connection>) {
        self.order.sort(&mut connections);
        self.connections = connections;
        if let Some(id) = self.chosen_id() {
            let now = self.connections.iter().find(|it| self::id(&it.flow) == id);
            self.chosen = now.cloned().or_else(|| self.chosen.take());
        }
    }

    fn chosen_id(&self) -> Option<Id> {
        self.chosen.as_ref().map(|it| id(&it.flow))
    }

    /// The connections that the filter lets through, in their order.
    pub fn wanted(&self) -> Vec<&Connection> {
        let text = self.filter.to_lowercase();
        let columns = columns();
        let has = |connection: &&Connection| {
            text.is_empty()
                || columns
                    .iter()
                    .any(|it| (it.of)(connection).text().to_lowercase().contains(&text))
        };
        self.connections.iter().filter(has).collect()
    }

    /// Why there is nothing to show.
    pub fn nothing(&self) -> &'static str {
        match self.connections.is_empty() {
            true => "no connection is being bundled",
            false => "no connection has the text of the filter",
        }
    }

    /// The chosen connection's place among those wanted.
    pub fn place(&self) -> Option<usize> {
        let id = self.chosen_id()?;
        self.wanted().iter().position(|it| self::id(&it.flow) == id)
    }

    pub fn key(&mut self, key: KeyEvent) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Next::End,
                _ => Next::GoOn,
            };
        }
        match self.screen {
            Screen::Filter => self.type_filter(key.code),
            Screen::Help => self.screen = Screen::List,
            Screen::Page => match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.screen = Screen::List,
                KeyCode::Up => self.step(-1),
                KeyCode::Down => self.step(1),
                code => return self.anywhere(code),
            },
            Screen::List => match key.code {
                KeyCode::Up | KeyCode::Char('k') => self.step(-1),
                KeyCode::Down | KeyCode::Char('j') => self.step(1),
                KeyCode::PageUp => self.step(-(self.room as isize)),
                KeyCode::PageDown => self.step(self.room as isize),
                KeyCode::Home => self.step(isize::MIN),
                KeyCode::End => self.step(isize::MAX),
                KeyCode::Left | KeyCode::Char('<') => self.sort_by(-1),
                KeyCode::Right | KeyCode::Char('>') => self.sort_by(1),
                KeyCode::Char('r') => {
                    self.order.reversed = !self.order.reversed;
                    self.order.sort(&mut self.connections);
                }
                KeyCode::Char('/') => self.screen = Screen::Filter,
                KeyCode::Esc => self.filter.clear(),
                KeyCode::Enter => {
                    if self.chosen.is_none() {
                        self.step(0);
                    }
                    if self.chosen.is_some() {
                        self.screen = Screen::Page;
                    }
                }
                code => return self.anywhere(code),
            },
        }
        Next::GoOn
    }

    fn anywhere(&mut self, code: KeyCode) -> Next {
        match code {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('?' | 'h') => self.screen = Screen::Help,
            KeyCode::Char(' ') => self.paused = !self.paused,
            _ => {}
        }
        Next::GoOn
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.screen = Screen::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.screen = Screen::List;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) => self.filter.push(character),
            _ => {}
        }
    }

    /// Chooses the connection so many lines below, or the first where none is chosen.
    fn step(&mut self, lines: isize) {
        let place = self.place();
        let wanted = self.wanted();
        let last = wanted.len().saturating_sub(1);
        let next = place.map_or(0, |place| place.saturating_add_signed(lines).min(last));
        self.chosen = wanted.get(next).map(|it| (*it).clone());
    }

    /// Sorts by the next column that is seen, to the right or to the left.
    fn sort_by(&mut self, step: isize) {
        let columns = columns();
        let count = columns.len() as isize;
        let next = (1..=count).map(|steps| {
            let column = self.order.column as isize + steps * step;
            column.rem_euclid(count) as usize
        });
        let is_seen = |place: &usize| self.headings.contains(&columns[*place].column.header);
        self.order = next
            .filter(is_seen)
            .map(Order::by)
            .next()
            .unwrap_or(self.order);
        self.order.sort(&mut self.connections);
    }
}

// The last rounds of each connection.

/// How many rounds are remembered of a connection.
const ROUNDS: usize = 240;

/// A connection among all that are there.
pub type Id = (Option<u32>, SocketAddr, SocketAddr);

pub fn id(flow: &Flow) -> Id {
    (flow.netns, flow.local, flow.peer)
}

/// What was seen of a connection in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Smoothed RTT, microseconds.
    pub rtt_us: u64,
    /// New segments since the round before.
    pub segments: u64,
    /// Of these, those with a bundle.
    pub bundled: u64,
    /// Packets retransmitted, and losses hidden, since then.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub struct History {
    of: HashMap<Id, (Totals, VecDeque<Round>)>,
}

/// Segments, those bundled, and what was lost, since the connection began.
#[derive(Debug, Clone, Copy)]
struct Totals([u64; 3]);

impl From<&Flow> for Totals {
    fn from(flow: &Flow) -> Self {
        let lost = u64::from(flow.retransmitted) + flow.counters.hidden_losses;
        let counters = &flow.counters;
        Self([counters.segments(), counters.of(Outcome::Bundled), lost])
    }
}

impl History {
    /// Takes note of a round; what has ended is forgotten.
    pub fn take(&mut self, connections: &[Connection]) {
        let mut before = std::mem::take(&mut self.of);
        for flow in connections.iter().map(|it| &it.flow) {
            let now = Totals::from(flow);
            let known = before.remove(&id(flow));
            let (last, mut rounds) = known.unwrap_or((now, VecDeque::new()));
            // Another connection of the same endpoints begins anew.
            let since = |place: usize| now.0[place].saturating_sub(last.0[place]);
            if rounds.len() == ROUNDS {
                rounds.pop_front();
            }
            rounds.push_back(Round {
                rtt_us: flow.srtt_us.unwrap_or(0).into(),
                segments: since(0),
                bundled: since(1),
                lost: since(2),
            });
            self.of.insert(id(flow), (now, rounds));
        }
    }

    /// The rounds of a connection, the oldest first.
    pub fn of(&self, id: &Id) -> impl Iterator<Item = &Round> {
        self.of.get(id).into_iter().flat_map(|(_, rounds)| rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::example;

    fn press(view: &mut View, keys: &str) {
        for character in keys.chars() {
            let code = match character {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '↓' => KeyCode::Down,
                other => KeyCode::Char(other),
            };
            assert_eq!(view.key(code.into()), Next::GoOn);
        }
    }

    fn view() -> View {
        let mut view = View::new(Order::by(0), String::new());
        view.take([5003, 5001, 5002].map(example).into());
        view
    }

    fn ports(view: &View) -> Vec<u16> {
        view.wanted()
            .iter()
            .map(|it| it.flow.local.port())
            .collect()
    }

    #[test]
    fn it_is_sorted_and_reversed() {
        let mut view = view();
        assert_eq!(ports(&view), [5001, 5002, 5003]);
        press(&mut view, "r");
        assert_eq!(ports(&view), [5003, 5002, 5001]);
        let saved = columns().iter().position(|it| it.column.header == "saved");
        view.order = Order::by(saved.unwrap());
        let mut connections = view.connections.clone();
        connections[1].flow.counters.saved_us = 9;
        view.take(connections);
        assert_eq!(ports(&view)[0], 5002);
    }

    #[test]
    fn arrows_sort_by_the_columns_that_are_seen() {
        let mut view = view();
        view.headings = ["local", "peer", "saved"].map(str::to_owned).into();
        let header = |view: &View| columns()[view.order.column].column.header.clone();
        for (key, sorted) in [
            (KeyCode::Left, "saved"),
            (KeyCode::Right, "local"),
            (KeyCode::Right, "peer"),
            (KeyCode::Right, "saved"),
        ] {
            view.key(key.into());
            assert_eq!(header(&view), sorted);
        }
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut view = view();
        press(&mut view, "/:5002\n");
        assert_eq!(ports(&view), [5002]);
        assert_eq!(view.screen, Screen::List);
        press(&mut view, "\u{1b}");
        assert_eq!(ports(&view).len(), 3);
        // While it is typed, no key ends anything.
        press(&mut view, "/q");
        assert_eq!(view.nothing(), "no connection has the text of the filter");
    }

    #[test]
    fn the_chosen_connection_stays_chosen_and_seen_when_it_ends() {
        let mut view = view();
        press(&mut view, "↓↓\n");
        assert_eq!(view.screen, Screen::Page);
        assert_eq!(view.place(), Some(1));
        view.take(vec![example(5001)]);
        assert_eq!(view.place(), None);
        assert_eq!(view.chosen.as_ref().unwrap().flow.local.port(), 5002);
        assert_eq!(view.key(KeyCode::Char('q').into()), Next::End);
    }

    #[test]
    fn nothing_can_be_chosen_where_nothing_is() {
        let mut view = View::new(Order::by(0), String::new());
        press(&mut view, "↓\n");
        assert_eq!((view.screen, view.place()), (Screen::List, None));
    }

    #[test]
    fn rounds_have_what_came_since_the_one_before() {
        let mut history = History::default();
        let mut connection = example(5001);
        history.take(&[connection.clone()]);
        connection
            .flow
            .counters
            .outcomes
            .insert(Outcome::Bundled, 7);
        connection.flow.retransmitted += 2;
        history.take(&[connection.clone()]);
        let rounds: Vec<_> = history.of(&id(&connection.flow)).copied().collect();
        assert_eq!(rounds.len(), 2);
        assert_eq!((rounds[1].bundled, rounds[1].lost), (7, 2));
        assert_eq!(rounds[0].segments, 0);
        history.take(&[]);
        assert_eq!(history.of(&id(&connection.flow)).count(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        let connection = [example(5001)];
        for _ in 0..ROUNDS + 10 {
            history.take(&connection);
        }
        assert_eq!(history.of(&id(&connection[0].flow)).count(), ROUNDS);
    }
}
