use std::iter;

use super::batch::{Batch, Noted};
use super::batch::{Finished, Known};
use super::measures::Measures;
use super::meter::Options;
use super::results::Fairness;
use super::results::{Clocks, Handshakes, Results, Single, Together};
use crate::Direction;
use crate::connection::CACHED;
use crate::pair::Clock;
use crate::prefetch;

/// So many notes before its turn, what a note changes is fetched.
const SOON: usize = 8;

/// What has been measured of each connection so far.
#[derive(Debug)]
pub(super) struct Ledger {
    slice_ns: i64,
    one_clock: bool,
    /// By the number of the connection, from 1.
    connections: Vec<State>,
}

#[derive(Debug, Default)]
struct State {
    measures: [Option<Box<Measures>>; 2],
    finished: Option<Box<Known>>,
}

impl Ledger {
    pub(super) fn new(slice_ns: i64) -> Self {
        Self {
            slice_ns,
            one_clock: false,
            connections: Vec::new(),
        }
    }

    /// Takes all out of a batch.
    pub(super) fn enter(&mut self, batch: &mut Batch) {
        self.one_clock = batch.one_clock;
        self.enter_all(&mut batch.sent, |sent| sent.direction, Measures::sent);
        self.enter_all(&mut batch.acked, |acked| acked.direction, Measures::acked);
        self.enter_all(&mut batch.arrived, |it| it.direction, Measures::arrived);
        self.enter_all(&mut batch.ranges, |range| range.direction, Measures::range);
        self.enter_all(&mut batch.fates, |fate| fate.direction, Measures::fate);
        for finished in batch.finished.drain(..) {
            self.finish(finished);
        }
    }

    #[inline]
    fn enter_all<T>(
        &mut self,
        all: &mut Vec<Noted<T>>,
        direction: impl Fn(&T) -> Direction,
        enter: impl Fn(&mut Measures, &T, i64),
    ) {
        let many = self.connections.len() > CACHED;
        for (place, noted) in all.iter().enumerate() {
            if many && let Some(soon) = all.get(place + SOON) {
                self.fetch(soon.number, direction(&soon.what));
            }
            if let Some(measures) = self.measures(noted.number, direction(&noted.what)) {
                enter(measures, &noted.what, noted.since_ns);
            }
        }
        all.clear();
    }

    /// Has the processor fetch measures that are to be changed soon.
    #[inline]
    fn fetch(&self, number: u64, direction: Direction) {
        let state = self.connections.get(number.wrapping_sub(1) as usize);
        if let Some(measures) = state.and_then(|state| state.measures[direction as usize].as_ref())
        {
            prefetch(&**measures);
        }
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { known, totals } = finished;
        for (direction, total) in Direction::BOTH.into_iter().zip(&totals) {
            if let Some(measures) = self.measures(known.number, direction) {
                measures.finished(total);
            }
        }
        if let Some(state) = self.state(known.number) {
            state.finished = Some(Box::new(known));
        }
    }

    #[inline]
    fn state(&mut self, number: u64) -> Option<&mut State> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, State::default);
        }
        self.connections.get_mut(index)
    }

    #[inline]
    fn measures(&mut self, number: u64, direction: Direction) -> Option<&mut Measures> {
        let (slice_ns, one_clock) = (self.slice_ns, self.one_clock);
        let measures = &mut self.state(number)?.measures[direction as usize];
        Some(measures.get_or_insert_with(|| Box::new(Measures::new(slice_ns, one_clock))))
    }

    /// From the time of the first packet to that of the last; of two traces with their clocks.
    pub(super) fn results(
        self,
        options: &Options,
        (begin_ns, end_ns): (i64, i64),
        clock: Option<&Clock>,
    ) -> Results {
        let duration_s = seconds(end_ns.saturating_sub(begin_ns));
        let mut all = Together::new(None, options.slice_ns);
        let names = options.groups.iter().map(|group| Some(group.name.clone()));
        let mut groups: Vec<_> = names
            .map(|name| Together::new(name, options.slice_ns))
            .collect();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        let mut singles = Vec::new();
        for state in self.connections {
            let Some(finished) = state.finished else {
                continue;
            };
            let mut measures = state.measures.map(|measures| match measures {
                Some(measures) => *measures,
                None => Measures::new(options.slice_ns, false),
            });
            if let Some(clock) = clock {
                let ways = iter::zip(finished.ways, &finished.lowest);
                for (measures, (way, lowest)) in measures.iter_mut().zip(ways) {
                    measures.compare(way, clock, lowest);
                }
            }
            for &group in &finished.groups {
                members[group].push(singles.len());
            }
            singles.push(finished.single(measures, options, &(begin_ns..end_ns)));
        }
        let everyone: Vec<usize> = (0..singles.len()).collect();
        for (together, members) in
            iter::once((&mut all, &everyone)).chain(groups.iter_mut().zip(&members))
        {
            together.of(members.iter().map(|&index| &singles[index]));
        }
        for single in &mut singles {
            single.main.settle();
            single.back.settle();
        }
        Results {
            begin_ns,
            duration_s,
            slice_s: seconds(options.slice_ns),
            clock: clock.map(|clock| Clocks::of(clock, begin_ns)),
            all,
            groups,
            connections: singles,
        }
    }
}

impl Together {
    fn new(name: Option<String>, slice_ns: i64) -> Self {
        Self {
            name,
            handshakes: Handshakes::default(),
            fairness: Fairness::default(),
            main: Measures::new(slice_ns, false),
            back: Measures::new(slice_ns, false),
        }
    }

    fn of<'a>(&mut self, connections: impl Iterator<Item = &'a Single> + Clone) {
        for connection in connections.clone() {
            self.handshakes.add(connection);
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

pub(super) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
