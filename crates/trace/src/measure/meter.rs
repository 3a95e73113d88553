use std::iter;

use super::delay;
use super::fairness::Fairness;
use super::group::Group;
use super::measures::Measures;
use super::results::{Clocks, Handshakes, Results, Single, Together};
use crate::pair::{Clock, Fate, Way};
use crate::{Acked, Arrived, Connection, Direction, Observer, Outcome, Range, Sent};

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The width of slices in nanoseconds, at least 1.
    pub slice_ns: i64,
    /// Connections that are to be measured together.
    pub groups: Vec<Group>,
    /// The throughput that each connection is due, all headers included, in bit/s: for fairness.
    pub optimum_bit_per_s: Option<f64>,
    /// The same for the connections of single groups, by name; the first group counts.
    pub optimum_of_group: Vec<(String, f64)>,
    /// Whether the traces at both ends were taken by one clock. If not, delays are told by what
    /// the traces show of both clocks.
    pub same_clock: bool,
}

impl Default for Options {
    /// Slices of a second.
    fn default() -> Self {
        Self {
            slice_ns: 1_000_000_000,
            groups: Vec::new(),
            optimum_bit_per_s: None,
            optimum_of_group: Vec::new(),
            same_clock: false,
        }
    }
}

/// Measures what it is told, and gives [`Results`] at the end.
#[derive(Debug)]
pub struct Meter {
    options: Options,
    /// By the number of the connection, from 1.
    connections: Vec<State>,
    /// By how much the receiver's clock is ahead of the sender's, about.
    ahead_ns: i64,
    span_ns: Option<(i64, i64)>,
}

#[derive(Debug, Default)]
struct State {
    measures: [Option<Box<Measures>>; 2],
    finished: Option<Box<Finished>>,
}

/// What is left to know of a connection at its end.
#[derive(Debug)]
struct Finished {
    number: u64,
    ends: [crate::Endpoint; 2],
    main: Direction,
    ways: [Way; 2],
    groups: Vec<usize>,
    first_ns: i64,
    last_ns: i64,
    outcome: Outcome,
    syns: u32,
    handshake_ns: Option<i64>,
}

impl Meter {
    /// Begins.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            connections: Vec::new(),
            ahead_ns: 0,
            span_ns: None,
        }
    }

    #[inline]
    fn state(&mut self, connection: &Connection) -> Option<&mut State> {
        let index = usize::try_from(connection.number.checked_sub(1)?).ok()?;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, State::default);
        }
        self.connections.get_mut(index)
    }

    #[inline]
    fn measures(&mut self, connection: &Connection, direction: Direction) -> Option<&mut Measures> {
        let slice_ns = self.options.slice_ns;
        let measures = &mut self.state(connection)?.measures[direction as usize];
        Some(measures.get_or_insert_with(|| Box::new(Measures::new(slice_ns))))
    }

    /// A time at one end of a way, since the first packet and by the clock of the sender's trace.
    #[inline]
    fn since_ns(&mut self, way: Way, at_ns: i64) -> i64 {
        let at_ns = match way {
            Way::There => at_ns,
            Way::Back => at_ns.saturating_sub(self.ahead_ns),
        };
        let (first_ns, last_ns) = self.span_ns.get_or_insert((at_ns, at_ns));
        *last_ns = at_ns.max(*last_ns);
        at_ns.saturating_sub(*first_ns)
    }

    /// Ends, of one trace.
    #[must_use]
    pub fn finish(self) -> Results {
        self.results(None)
    }

    /// Ends, of two traces.
    #[must_use]
    pub fn finish_pair(self, clock: &Clock) -> Results {
        self.results(Some(clock))
    }

    fn results(self, clock: Option<&Clock>) -> Results {
        let Self {
            options,
            connections,
            span_ns,
            ..
        } = self;
        let (begin_ns, end_ns) = span_ns.unwrap_or_default();
        let duration_s = seconds(end_ns.saturating_sub(begin_ns));
        let mut all = Together::new(None, options.slice_ns);
        let names = options.groups.iter().map(|group| Some(group.name.clone()));
        let mut groups: Vec<_> = names
            .map(|name| Together::new(name, options.slice_ns))
            .collect();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        let mut singles = Vec::new();
        for state in connections {
            let Some(finished) = state.finished else {
                continue;
            };
            let mut measures = state.measures.map(|measures| match measures {
                Some(measures) => *measures,
                None => Measures::new(options.slice_ns),
            });
            if let Some(&clock) = clock {
                let clocks = if options.same_clock {
                    delay::Clocks::Same(clock)
                } else {
                    delay::Clocks::Own(clock)
                };
                for (measures, way) in measures.iter_mut().zip(finished.ways) {
                    measures.compare(way, &clocks);
                }
            }
            for &group in &finished.groups {
                members[group].push(singles.len());
            }
            singles.push(finished.single(measures, &options, begin_ns, duration_s));
        }
        let everyone: Vec<usize> = (0..singles.len()).collect();
        for (together, members) in
            iter::once((&mut all, &everyone)).chain(groups.iter_mut().zip(&members))
        {
            together.of(members.iter().map(|&index| &singles[index]), duration_s);
        }
        for single in &mut singles {
            single.main.settle();
            single.back.settle();
        }
        Results {
            begin_ns,
            duration_s,
            slice_s: seconds(options.slice_ns),
            clock: clock.map(|clock| Clocks::of(clock, options.same_clock, begin_ns)),
            all,
            groups,
            connections: singles,
        }
    }
}

impl Finished {
    fn single(
        &self,
        measures: [Measures; 2],
        options: &Options,
        begin_ns: i64,
        trace_s: f64,
    ) -> Single {
        let [forward, backward] = measures;
        let [originator, responder] = self.ends;
        let opened_by_sender = self.main == Direction::Forward;
        let (main, back, sender, receiver) = if opened_by_sender {
            (forward, backward, originator, responder)
        } else {
            (backward, forward, responder, originator)
        };
        let groups = self.groups.iter().map(|&group| &options.groups[group].name);
        let groups: Vec<String> = groups.cloned().collect();
        let by_group = |name: &String| {
            let optima = &mut options.optimum_of_group.iter();
            optima.find(|(group, _)| group == name).map(|found| found.1)
        };
        let carried_bits = main.carried_wire_bytes as f64 * 8.0;
        Single {
            number: self.number,
            sender,
            receiver,
            opened_by_sender,
            begin_s: seconds(self.first_ns.saturating_sub(begin_ns)),
            duration_s: seconds(self.last_ns.saturating_sub(self.first_ns)),
            outcome: self.outcome,
            syns: self.syns,
            handshake_ms: self.handshake_ns.map(|ns| ns as f64 / 1e6),
            throughput_bit_per_s: if trace_s > 0.0 {
                carried_bits / trace_s
            } else {
                0.0
            },
            optimum_bit_per_s: groups
                .iter()
                .find_map(by_group)
                .or(options.optimum_bit_per_s),
            groups,
            main,
            back,
        }
    }
}

impl Together {
    fn new(name: Option<String>, slice_ns: i64) -> Self {
        Self {
            name,
            handshakes: Handshakes::default(),
            fairness: Fairness::default(),
            main: Measures::new(slice_ns),
            back: Measures::new(slice_ns),
        }
    }

    fn of<'a>(&mut self, connections: impl Iterator<Item = &'a Single> + Clone, trace_s: f64) {
        for connection in connections.clone() {
            self.handshakes.add(connection, trace_s);
            self.main.add(&connection.main);
            self.back.add(&connection.back);
        }
        let share = |connection: &Single| {
            (
                connection.throughput_bit_per_s,
                connection.optimum_bit_per_s,
            )
        };
        self.fairness = Fairness::of(connections.map(share));
        self.main.settle();
        self.back.settle();
    }
}

impl Observer for Meter {
    fn clocks(&mut self, ahead_ns: i64) {
        self.ahead_ns = ahead_ns;
    }

    #[inline]
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        let since_ns = self.since_ns(connection.way(sent.direction), sent.at_ns);
        if let Some(measures) = self.measures(connection, sent.direction) {
            measures.sent(sent, since_ns);
        }
    }

    #[inline]
    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        let since_ns = self.since_ns(connection.way(acked.direction), acked.at_ns);
        if let Some(measures) = self.measures(connection, acked.direction) {
            measures.acked(acked, since_ns);
        }
    }

    #[inline]
    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        let far_end = connection.way(arrived.direction.reverse());
        let since_ns = self.since_ns(far_end, arrived.at_ns);
        if let Some(measures) = self.measures(connection, arrived.direction) {
            measures.arrived(arrived, since_ns);
        }
    }

    #[inline]
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let far_end = connection.way(direction.reverse());
        let readable_ns = range.delivery.and_then(|delivery| delivery.in_order_ns);
        let since_ns = readable_ns.map(|at_ns| self.since_ns(far_end, at_ns));
        if let Some(measures) = self.measures(connection, direction) {
            measures.range(range, since_ns);
        }
    }

    #[inline]
    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        let since_ns = self.since_ns(fate.way, fate.sent_ns);
        if let Some(measures) = self.measures(connection, fate.direction) {
            measures.fate(fate, since_ns);
        }
    }

    fn finished(&mut self, connection: &Connection) {
        for direction in Direction::BOTH {
            if let Some(measures) = self.measures(connection, direction) {
                measures.finished(connection, direction);
            }
        }
        let groups = self.options.groups.iter().enumerate();
        let groups = groups
            .filter(|(_, group)| group.takes(connection))
            .map(|(index, _)| index)
            .collect();
        let handshake = connection.handshake;
        let completed_ns = handshake.first_syn_ns.zip(handshake.completed_ns);
        let finished = Finished {
            number: connection.number,
            ends: [connection.originator, connection.responder],
            main: connection.main_direction(),
            ways: Direction::BOTH.map(|direction| connection.way(direction)),
            groups,
            first_ns: connection.first_ns,
            last_ns: connection.last_ns,
            outcome: connection.outcome(),
            syns: handshake.syns,
            handshake_ns: completed_ns.map(|(first, completed)| completed.saturating_sub(first)),
        };
        if let Some(state) = self.state(connection) {
            state.finished = Some(Box::new(finished));
        }
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
