use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::{iter, thread};

use super::batch::{Batch, BatchEntry};
use super::batch::{ConnectionInfo, FinishedConnection};
use super::measures::Measures;
use super::options::MeterOptions;
use super::results::Fairness;
use super::results::{ClockSummary, ConnectionResults, GroupResults, Handshakes, Results};
use crate::Direction;
use crate::connection::CACHED_CONNECTIONS;
use crate::pair::Clock;
use crate::prefetch;

/// The measures of the entry this far ahead are prefetched.
const PREFETCH_DISTANCE: usize = 8;

/// Measures of each connection so far.
#[derive(Debug)]
pub(super) struct Ledger {
    slice_ns: i64,
    one_clock: bool,
    /// By connection number, from 1.
    connections: Vec<State>,
}

#[derive(Debug, Default)]
struct State {
    measures: [Option<Box<Measures>>; 2],
    finished: Option<Box<ConnectionInfo>>,
}

impl Ledger {
    pub(super) fn new(slice_ns: i64) -> Self {
        Self {
            slice_ns,
            one_clock: false,
            connections: Vec::new(),
        }
    }

    /// Applies and empties a batch.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        self.one_clock = batch.one_clock;
        self.apply_all(&mut batch.sent, |sent| sent.direction, Measures::sent);
        self.apply_all(&mut batch.acked, |acked| acked.direction, Measures::acked);
        self.apply_all(&mut batch.arrived, |it| it.direction, Measures::arrived);
        self.apply_all(&mut batch.ranges, |range| range.direction, Measures::range);
        self.apply_all(
            &mut batch.dispositions,
            |disposition| disposition.direction,
            Measures::disposition,
        );
        for finished in batch.finished.drain(..) {
            self.finish(finished);
        }
    }

    #[inline]
    fn apply_all<T>(
        &mut self,
        all: &mut Vec<BatchEntry<T>>,
        direction: impl Fn(&T) -> Direction,
        apply: impl Fn(&mut Measures, &T, i64),
    ) {
        let many = self.connections.len() > CACHED_CONNECTIONS;
        for (index, entry) in all.iter().enumerate() {
            if many && let Some(upcoming) = all.get(index + PREFETCH_DISTANCE) {
                self.fetch(upcoming.number, direction(&upcoming.sample));
            }
            if let Some(measures) = self.measures(entry.number, direction(&entry.sample)) {
                apply(measures, &entry.sample, entry.since_ns);
            }
        }
        all.clear();
    }

    /// Prefetches measures that change soon.
    #[inline]
    fn fetch(&self, number: u64, direction: Direction) {
        let state = self.connections.get(number.wrapping_sub(1) as usize);
        if let Some(measures) = state.and_then(|state| state.measures[direction as usize].as_ref())
        {
            prefetch(&**measures);
        }
    }

    fn finish(&mut self, finished: FinishedConnection) {
        let FinishedConnection { info, totals } = finished;
        for (direction, total) in Direction::BOTH.into_iter().zip(&totals) {
            if let Some(measures) = self.measures(info.number, direction) {
                measures.finished(total);
            }
        }
        if let Some(state) = self.state(info.number) {
            state.finished = Some(Box::new(info));
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

    /// The finished connections and their final measures, on two threads.
    fn finalize(
        mut self,
        slice_ns: i64,
        clock: Option<&Clock>,
    ) -> impl Iterator<Item = (Box<ConnectionInfo>, [Measures; 2])> {
        let finalize = |states: Vec<State>| -> Vec<_> {
            let states = states.into_iter();
            let states = states.filter_map(|state| Some((state.finished?, state.measures)));
            states
                .map(|(info, measures)| {
                    let empty = || Box::new(Measures::new(slice_ns, false));
                    let mut measures = measures.map(|it| *it.unwrap_or_else(empty));
                    let ways = iter::zip(info.ways, &info.lowest);
                    for (measures, (way, lowest)) in measures.iter_mut().zip(ways) {
                        if let Some(clock) = clock {
                            measures.apply_clock(way, clock, lowest);
                        }
                        measures.finalize();
                    }
                    (info, measures)
                })
                .collect()
        };
        let others = self.connections.split_off(self.connections.len() / 2);
        thread::scope(|scope| {
            let others = scope.spawn(|| finalize(others));
            let first = finalize(self.connections);
            let others = others.join().unwrap_or_else(|panic| resume_unwind(panic));
            first.into_iter().chain(others)
        })
    }

    /// `start_ns`, `end_ns`: times of the first and last packet. `clock`: only of two traces.
    pub(super) fn results(
        self,
        options: &MeterOptions,
        (start_ns, end_ns): (i64, i64),
        clock: Option<&Clock>,
    ) -> Results {
        let duration_s = seconds(end_ns.saturating_sub(start_ns));
        let mut all = GroupResults::new(None, options.slice_ns);
        let names = options.groups.iter().map(|group| Some(group.name.clone()));
        let mut groups: Vec<_> = names
            .map(|name| GroupResults::new(name, options.slice_ns))
            .collect();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        let mut connections = Vec::new();
        for (info, measures) in self.finalize(options.slice_ns, clock) {
            for &group in &info.groups {
                members[group].push(connections.len());
            }
            connections.push(info.to_results(measures, options, &(start_ns..end_ns)));
        }
        let all_indices: Vec<usize> = (0..connections.len()).collect();
        for (group_results, members) in
            iter::once((&mut all, &all_indices)).chain(groups.iter_mut().zip(&members))
        {
            let members = members.iter().map(|&index| &connections[index]);
            group_results.aggregate(members, options.streams_by_address);
        }
        Results {
            start_ns,
            duration_s,
            slice_s: seconds(options.slice_ns),
            clock: clock.map(|clock| ClockSummary::new(clock, start_ns)),
            all,
            groups,
            connections,
        }
    }
}

impl GroupResults {
    fn new(name: Option<String>, slice_ns: i64) -> Self {
        Self {
            name,
            handshakes: Handshakes::default(),
            fairness: Fairness::default(),
            main: Measures::new(slice_ns, false),
            back: Measures::new(slice_ns, false),
        }
    }

    fn aggregate<'a>(
        &mut self,
        connections: impl Iterator<Item = &'a ConnectionResults> + Clone,
        streams_by_address: bool,
    ) {
        let mut streams: BTreeMap<_, Vec<&ConnectionResults>> = BTreeMap::new();
        for connection in connections.clone() {
            let attempt = match streams_by_address {
                true => 0,
                false => connection.number,
            };
            let stream = (connection.sender, connection.receiver, attempt);
            streams.entry(stream).or_default().push(connection);
            self.main.add(&connection.main);
            self.back.add(&connection.back);
        }
        for connections in streams.values() {
            self.handshakes.add_stream(connections);
        }
        let share = |connection: &ConnectionResults| {
            (
                connection.throughput_bit_per_s,
                connection.optimum_bit_per_s,
            )
        };
        self.fairness = Fairness::new(connections.map(share));
        self.main.finalize();
        self.back.finalize();
    }
}

impl ConnectionInfo {
    /// Combines it with its measures. `trace_ns`: from the first to the last measured packet.
    fn to_results(
        &self,
        measures: [Measures; 2],
        options: &MeterOptions,
        trace_ns: &Range<i64>,
    ) -> ConnectionResults {
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
        let start_ns = trace_ns.start;
        let trace_s = seconds(trace_ns.end.saturating_sub(start_ns));
        // A connection that was open before the measured period counts from the period's start.
        let first_ns = self.first_ns.max(start_ns);
        let carried_bits = main.carried_wire_bytes as f64 * 8.0;
        ConnectionResults {
            number: self.number,
            sender,
            receiver,
            opened_by_sender,
            start_s: seconds(first_ns.saturating_sub(start_ns)),
            duration_s: seconds(self.last_ns.saturating_sub(first_ns)),
            outcome: self.outcome,
            only_at: self.only_at,
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
            dropped: self.was_dropped(options.test_ns.as_ref().unwrap_or(trace_ns)),
        }
    }

    /// Whether it lasted less than half of a test (thesis, table 4.1).
    fn was_dropped(&self, test_ns: &Range<i64>) -> bool {
        let until_ns = self.last_ns.min(test_ns.end);
        let lasted_ns = until_ns.saturating_sub(self.first_ns.max(test_ns.start));
        let whole_ns = test_ns.end.saturating_sub(test_ns.start);
        lasted_ns.saturating_mul(2) < whole_ns
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
