//! State of the interactive view, and its keys.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pillion_bpf::{Flow, Outcome};

use crate::flows::{Cell, Connection, columns};

/// Sort order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub column: usize,
    /// By default numbers descend and text ascends.
    pub reversed: bool,
}

impl Order {
    pub fn by_column(column: usize) -> Self {
        Self {
            column,
            reversed: false,
        }
    }

    fn sort(self, connections: &mut [Connection]) {
        let cell = columns()[self.column].cell;
        let first = connections.first().map(cell);
        let is_numeric = matches!(first, Some(Cell::Number { .. }));
        match is_numeric != self.reversed {
            true => connections.sort_by_cached_key(|it| Reverse(cell(it))),
            false => connections.sort_by_cached_key(cell),
        }
    }
}

/// Screen that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    List,
    /// List with the filter being edited.
    Filter,
    Help,
    /// Details of the selected connection.
    Details,
}

/// Effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    Continue,
    Quit,
}

/// Connections and the state of the view.
pub struct View {
    pub connections: Vec<Connection>,
    /// Indices of the connections that match the filter.
    matching: Vec<usize>,
    pub history: History,
    pub order: Order,
    pub filter: String,
    pub screen: Screen,
    /// Selected connection; its last state if it has ended.
    pub selected: Option<Connection>,
    pub paused: bool,
    /// Comparisons of rules with a holdback, a line each.
    pub holdbacks: Vec<String>,
    /// Draws no character other than ASCII.
    pub is_ascii_only: bool,
    /// Index of the first visible row.
    pub scroll_offset: usize,
    /// Number of visible rows at the last drawing.
    pub page_height: usize,
    /// Headings of the visible columns at the last drawing.
    pub headings: Vec<String>,
}

impl View {
    pub fn new(order: Order, filter: String) -> Self {
        Self {
            connections: Vec::new(),
            matching: Vec::new(),
            history: History::default(),
            order,
            filter,
            screen: Screen::List,
            selected: None,
            paused: false,
            holdbacks: Vec::new(),
            is_ascii_only: false,
            scroll_offset: 0,
            page_height: 1,
            headings: Vec::new(),
        }
    }

    /// Shows new connections, and adds them to the history.
    pub fn update(&mut self, connections: Vec<Connection>) {
        self.history.add_sample(&connections);
        self.show(connections);
    }

    /// Shows new connections without a history, for batch mode.
    pub fn show(&mut self, connections: Vec<Connection>) {
        self.connections = connections;
        self.arrange();
        if let Some(id) = self.selected_id() {
            let now = self.connections.iter().find(|it| self::id(&it.flow) == id);
            self.selected = now.cloned().or_else(|| self.selected.take());
        }
    }

    fn selected_id(&self) -> Option<Id> {
        self.selected.as_ref().map(|it| id(&it.flow))
    }

    /// Sorts and filters the connections. Called once per change, because it formats every cell.
    fn arrange(&mut self) {
        self.order.sort(&mut self.connections);
        let text = self.filter.to_lowercase();
        let columns = columns();
        let has = |connection: &Connection| {
            text.is_empty()
                || columns
                    .iter()
                    .any(|it| (it.cell)(connection).text().to_lowercase().contains(&text))
        };
        let all = 0..self.connections.len();
        self.matching = all.filter(|it| has(&self.connections[*it])).collect();
    }

    /// Returns the connections that match the filter, in order.
    pub fn visible(&self) -> Vec<&Connection> {
        let matching = self.matching.iter();
        matching.map(|it| &self.connections[*it]).collect()
    }

    /// Returns the reason why the list is empty.
    pub fn empty_message(&self) -> &'static str {
        match self.connections.is_empty() {
            true => "no connection is bundled",
            false => "no connection matches the filter",
        }
    }

    /// Returns the index of the selected connection among the visible ones.
    pub fn position(&self) -> Option<usize> {
        let id = self.selected_id()?;
        self.visible()
            .iter()
            .position(|it| self::id(&it.flow) == id)
    }

    pub fn handle_key(&mut self, key: KeyEvent) -> KeyOutcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyOutcome::Quit,
                _ => KeyOutcome::Continue,
            };
        }
        match self.screen {
            Screen::Filter => self.type_filter(key.code),
            Screen::Help => self.screen = Screen::List,
            Screen::Details => match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.screen = Screen::List,
                KeyCode::Up => self.move_selection(-1),
                KeyCode::Down => self.move_selection(1),
                code => return self.handle_common_key(code),
            },
            Screen::List => match key.code {
                KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
                KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
                KeyCode::PageUp => self.move_selection(-(self.page_height as isize)),
                KeyCode::PageDown => self.move_selection(self.page_height as isize),
                KeyCode::Home => self.move_selection(isize::MIN),
                KeyCode::End => self.move_selection(isize::MAX),
                KeyCode::Left | KeyCode::Char('<') => self.sort_by(-1),
                KeyCode::Right | KeyCode::Char('>') => self.sort_by(1),
                KeyCode::Char('r') => {
                    self.order.reversed = !self.order.reversed;
                    self.arrange();
                }
                KeyCode::Char('/') => self.screen = Screen::Filter,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.arrange();
                }
                KeyCode::Enter => {
                    if self.selected.is_none() {
                        self.move_selection(0);
                    }
                    if self.selected.is_some() {
                        self.screen = Screen::Details;
                    }
                }
                code => return self.handle_common_key(code),
            },
        }
        KeyOutcome::Continue
    }

    fn handle_common_key(&mut self, code: KeyCode) -> KeyOutcome {
        match code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Char('?' | 'h') => self.screen = Screen::Help,
            KeyCode::Char(' ') => self.paused = !self.paused,
            _ => {}
        }
        KeyOutcome::Continue
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
        self.arrange();
    }

    /// Moves the selection by this number of rows, or selects the first row.
    fn move_selection(&mut self, lines: isize) {
        let position = self.position();
        let visible = self.visible();
        let last = visible.len().saturating_sub(1);
        let next = position.map_or(0, |position| {
            position.saturating_add_signed(lines).min(last)
        });
        self.selected = visible.get(next).map(|it| (*it).clone());
    }

    /// Sorts by the next visible column, to the right or left.
    fn sort_by(&mut self, step: isize) {
        let columns = columns();
        let count = columns.len() as isize;
        let next = (1..=count).map(|steps| {
            let column = self.order.column as isize + steps * step;
            column.rem_euclid(count) as usize
        });
        let is_seen = |position: &usize| self.headings.contains(&columns[*position].column.header);
        self.order = next
            .filter(is_seen)
            .map(Order::by_column)
            .next()
            .unwrap_or(self.order);
        self.arrange();
    }
}

// History of each connection.

/// Maximum number of samples stored per connection.
const MAX_SAMPLES: usize = 240;

/// Network namespace, local and remote address.
pub type Id = (Option<u32>, SocketAddr, SocketAddr);

pub fn id(flow: &Flow) -> Id {
    (flow.netns, flow.local, flow.peer)
}

/// Measurements of a connection between two iterations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Smoothed RTT, in microseconds.
    pub rtt_us: u64,
    /// New segments since the previous sample.
    pub segments: u64,
    /// New segments with a bundle since the previous sample.
    pub bundled: u64,
    /// Retransmitted packets and hidden losses since the previous sample.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub struct History {
    by_connection: HashMap<Id, (LastTotals, VecDeque<Sample>)>,
}

/// New segments, bundled segments and losses since the start of the connection.
#[derive(Debug, Clone, Copy)]
struct LastTotals([u64; 3]);

impl From<&Flow> for LastTotals {
    fn from(flow: &Flow) -> Self {
        let lost = u64::from(flow.retransmitted_packets) + flow.counters.hidden_losses;
        let counters = &flow.counters;
        Self([counters.segments(), counters.of(Outcome::Bundled), lost])
    }
}

impl History {
    /// Adds a sample of each connection, and forgets ended ones.
    pub fn add_sample(&mut self, connections: &[Connection]) {
        let mut previous = std::mem::take(&mut self.by_connection);
        for flow in connections.iter().map(|it| &it.flow) {
            let now = LastTotals::from(flow);
            let entry = previous.remove(&id(flow));
            let (last, mut samples) = entry.unwrap_or((now, VecDeque::new()));
            // Counters restart at 0 if a new connection has the same endpoints.
            let since = |position: usize| now.0[position].saturating_sub(last.0[position]);
            if samples.len() == MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(Sample {
                rtt_us: flow.srtt_us.unwrap_or(0).into(),
                segments: since(0),
                bundled: since(1),
                lost: since(2),
            });
            self.by_connection.insert(id(flow), (now, samples));
        }
    }

    /// Returns the samples of a connection, oldest first.
    pub fn samples(&self, id: &Id) -> impl Iterator<Item = &Sample> {
        self.by_connection
            .get(id)
            .into_iter()
            .flat_map(|(_, samples)| samples)
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
            assert_eq!(view.handle_key(code.into()), KeyOutcome::Continue);
        }
    }

    fn view() -> View {
        let mut view = View::new(Order::by_column(0), String::new());
        view.update([5003, 5001, 5002].map(example).into());
        view
    }

    fn ports(view: &View) -> Vec<u16> {
        view.visible()
            .iter()
            .map(|it| it.flow.local.port())
            .collect()
    }

    #[test]
    fn list_is_sorted_and_reversed() {
        let mut view = view();
        assert_eq!(ports(&view), [5001, 5002, 5003]);
        press(&mut view, "r");
        assert_eq!(ports(&view), [5003, 5002, 5001]);
        let saved = columns().iter().position(|it| it.column.header == "saved");
        view.order = Order::by_column(saved.unwrap());
        let mut connections = view.connections.clone();
        connections[1].flow.counters.time_saved_us = 9;
        view.update(connections);
        assert_eq!(ports(&view)[0], 5002);
    }

    #[test]
    fn arrow_keys_sort_by_shown_columns_only() {
        let mut view = view();
        view.headings = ["local", "peer", "saved"].map(str::to_owned).into();
        let header = |view: &View| columns()[view.order.column].column.header.clone();
        for (key, sorted) in [
            (KeyCode::Left, "saved"),
            (KeyCode::Right, "local"),
            (KeyCode::Right, "peer"),
            (KeyCode::Right, "saved"),
        ] {
            view.handle_key(key.into());
            assert_eq!(header(&view), sorted);
        }
    }

    #[test]
    fn filter_is_typed_and_cleared() {
        let mut view = view();
        press(&mut view, "/:5002\n");
        assert_eq!(ports(&view), [5002]);
        assert_eq!(view.screen, Screen::List);
        press(&mut view, "\u{1b}");
        assert_eq!(ports(&view).len(), 3);
        // In the filter, `q` is text.
        press(&mut view, "/q");
        assert_eq!(view.empty_message(), "no connection matches the filter");
    }

    #[test]
    fn ended_connection_stays_selected() {
        let mut view = view();
        press(&mut view, "↓↓\n");
        assert_eq!(view.screen, Screen::Details);
        assert_eq!(view.position(), Some(1));
        view.update(vec![example(5001)]);
        assert_eq!(view.position(), None);
        assert_eq!(view.selected.as_ref().unwrap().flow.local.port(), 5002);
        assert_eq!(view.handle_key(KeyCode::Char('q').into()), KeyOutcome::Quit);
    }

    #[test]
    fn empty_list_allows_no_selection() {
        let mut view = View::new(Order::by_column(0), String::new());
        press(&mut view, "↓\n");
        assert_eq!((view.screen, view.position()), (Screen::List, None));
    }

    #[test]
    fn samples_hold_changes_since_previous_sample() {
        let mut history = History::default();
        let mut connection = example(5001);
        history.add_sample(&[connection.clone()]);
        connection
            .flow
            .counters
            .outcomes
            .insert(Outcome::Bundled, 7);
        connection.flow.retransmitted_packets += 2;
        history.add_sample(&[connection.clone()]);
        let samples: Vec<_> = history.samples(&id(&connection.flow)).copied().collect();
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[1].bundled, samples[1].lost), (7, 2));
        assert_eq!(samples[0].segments, 0);
        history.add_sample(&[]);
        assert_eq!(history.samples(&id(&connection.flow)).count(), 0);
    }

    #[test]
    fn history_is_bounded() {
        let mut history = History::default();
        let connection = [example(5001)];
        for _ in 0..MAX_SAMPLES + 10 {
            history.add_sample(&connection);
        }
        assert_eq!(
            history.samples(&id(&connection[0].flow)).count(),
            MAX_SAMPLES
        );
    }
}
