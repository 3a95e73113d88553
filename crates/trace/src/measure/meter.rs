use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::{mem, ops};

use super::batch::{Acknowledgement, Batch, Departure, Extent, Finished, Noted, Transit};
use super::group::Group;
use super::ledger::Ledger;
use super::results::Results;
use crate::event::{Fate, PathDirection};
use crate::pair::Clock;
use crate::{Acked, Ahead, Arrived, Connection, Direction, Observer, Range, Sent};

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The width of slices in nanoseconds, at least 1.
    pub slice_ns: i64,
    /// Connections that are to be measured together.
    pub groups: Vec<Group>,
    /// The throughput that each connection is due, all headers included, in bit/s: for fairness.
    pub optimum_bit_per_s: Option<f64>,
    /// The throughput that each connection of a group is due, by the group's name, in bit/s; of
    /// several groups of a connection the first counts.
    pub optimum_of_group: Vec<(String, f64)>,
    /// When the connections were to be there, in nanoseconds since 1970, by the clock of the trace
    /// at the sender: one that lasted less than half of it was dropped (thesis, table 4.1). A trace
    /// also has what came before and after, such as a backlog that drains; without this it counts
    /// as a whole.
    pub test_ns: Option<ops::Range<i64>>,
}

impl Default for Options {
    /// Slices of a second.
    fn default() -> Self {
        Self {
            slice_ns: 1_000_000_000,
            groups: Vec::new(),
            optimum_bit_per_s: None,
            optimum_of_group: Vec::new(),
            test_ns: None,
        }
    }
}

/// Measures what it is told, and gives [`Results`] at the end.
///
/// A meter notes what it is told, with times since the first packet; another thread enters that
/// in the measures of each connection.
#[derive(Debug)]
pub struct Meter {
    options: Options,
    batch: Batch,
    /// Of the notes in the batch.
    count: usize,
    pub(super) bookkeeper: Bookkeeper,
    ahead: Ahead,
    span_ns: Option<(i64, i64)>,
}

/// Notes that are handed over at one time: so many that waking the other thread costs little,
/// even where it has to wait for a core.
const BATCH: usize = 4096;

impl Meter {
    /// Begins.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            batch: Batch::default(),
            count: 0,
            bookkeeper: Bookkeeper::new(options.slice_ns),
            options,
            ahead: Ahead::About(0),
            span_ns: None,
        }
    }

    /// To be called after each note.
    #[inline]
    fn noted(&mut self) {
        self.count += 1;
        if self.count == BATCH {
            self.count = 0;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.batch.one_clock = self.ahead == Ahead::Never;
        self.bookkeeper.enter(&mut self.batch);
    }

    /// A time at one end of a way, since the first packet and by the clock of the sender's trace.
    #[inline]
    fn since_ns(&mut self, way: PathDirection, at_ns: i64) -> i64 {
        let at_ns = match way {
            PathDirection::ToReceiver => at_ns,
            PathDirection::ToSender => match self.ahead {
                Ahead::Never => at_ns,
                Ahead::About(ahead_ns) => at_ns.saturating_sub(ahead_ns),
            },
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

    fn results(mut self, clock: Option<&Clock>) -> Results {
        self.hand_over();
        let ledger = self.bookkeeper.finish();
        ledger.results(&self.options, self.span_ns.unwrap_or_default(), clock)
    }
}

impl Observer for Meter {
    fn clocks(&mut self, ahead: Ahead) {
        self.ahead = ahead;
    }

    #[inline]
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        let since_ns = self.since_ns(connection.path_direction(sent.direction), sent.at_ns);
        self.batch.sent.push(Noted {
            number: connection.number,
            since_ns,
            what: Departure::of(sent),
        });
        self.noted();
    }

    #[inline]
    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        let since_ns = self.since_ns(connection.path_direction(acked.direction), acked.at_ns);
        self.batch.acked.push(Noted {
            number: connection.number,
            since_ns,
            what: Acknowledgement::of(acked),
        });
        self.noted();
    }

    #[inline]
    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        let far_end = connection.path_direction(arrived.direction.reverse());
        let since_ns = self.since_ns(far_end, arrived.at_ns);
        self.batch.arrived.push(Noted {
            number: connection.number,
            since_ns,
            what: *arrived,
        });
        self.noted();
    }

    #[inline]
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let far_end = connection.path_direction(direction.reverse());
        let has_receiver = connection.passage(direction).is_some();
        let readable_ns = range.delivery.and_then(|delivery| delivery.in_order_ns());
        let since_ns = readable_ns.map(|at_ns| self.since_ns(far_end, at_ns));
        self.batch.ranges.push(Noted {
            number: connection.number,
            since_ns: since_ns.unwrap_or_default(),
            what: Extent::of(range, direction, has_receiver),
        });
        self.noted();
    }

    #[inline]
    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        let since_ns = self.since_ns(fate.path_direction, fate.sent_ns);
        if !fate.class.carries_data() {
            return;
        }
        self.batch.fates.push(Noted {
            number: connection.number,
            since_ns,
            what: Transit::of(fate),
        });
        self.noted();
    }

    fn finished(&mut self, connection: &Connection) {
        let groups = self.options.groups.iter().enumerate();
        let groups = groups
            .filter(|(_, group)| group.takes(connection))
            .map(|(index, _)| index)
            .collect();
        let way = connection.path_direction(Direction::Forward);
        let opened_ns = connection.handshake.first_syn_ns;
        let opened_since_ns = opened_ns.map(|at_ns| self.since_ns(way, at_ns));
        let finished = Finished::of(connection, groups, opened_since_ns);
        self.batch.finished.push(finished);
        self.noted();
    }
}

/// Enters batches in a [`Ledger`]: on a thread of its own, so that it takes no time of the one
/// that is told; where there is but one core, or no thread to be had, at once.
#[derive(Debug)]
pub(super) enum Bookkeeper {
    Apart(Apart),
    Here(Ledger),
}

#[derive(Debug)]
pub(super) struct Apart {
    to_enter: SyncSender<Batch>,
    /// Batches that have been entered, to be filled again.
    empty: Receiver<Batch>,
    thread: JoinHandle<Ledger>,
}

/// Batches that may wait to be entered.
const BATCHES: usize = 4;

impl Bookkeeper {
    pub(super) fn new(slice_ns: i64) -> Self {
        if available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            return Self::Here(Ledger::new(slice_ns));
        }
        Self::apart(slice_ns)
    }

    fn apart(slice_ns: i64) -> Self {
        let (to_enter, full) = sync_channel::<Batch>(BATCHES);
        let (emptied, empty) = channel();
        let work = move || {
            let mut ledger = Ledger::new(slice_ns);
            for mut batch in full {
                ledger.enter(&mut batch);
                // Nobody takes it once all have been handed over.
                let _ = emptied.send(batch);
            }
            ledger
        };
        match Builder::new().spawn(work) {
            Ok(thread) => Self::Apart(Apart {
                to_enter,
                empty,
                thread,
            }),
            Err(_) => Self::Here(Ledger::new(slice_ns)),
        }
    }

    /// Takes what a batch holds, and leaves an empty one.
    pub(super) fn enter(&mut self, batch: &mut Batch) {
        match self {
            Self::Apart(apart) => {
                let next = apart.empty.try_recv().unwrap_or_default();
                // It is refused only if the thread has panicked, which `finish` passes on.
                let _ = apart.to_enter.send(mem::replace(batch, next));
            }
            Self::Here(ledger) => ledger.enter(batch),
        }
    }

    /// Waits until all has been entered.
    pub(super) fn finish(self) -> Ledger {
        match self {
            Self::Apart(apart) => {
                drop(apart.to_enter);
                let entered = apart.thread.join();
                entered.unwrap_or_else(|panic| resume_unwind(panic))
            }
            Self::Here(ledger) => ledger,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use crate::Analysis;
    use crate::property::any_packet;

    use super::*;

    fn measured_by(bookkeeper: Bookkeeper) -> String {
        let mut meter = Meter::new(Default::default());
        meter.bookkeeper = bookkeeper;
        let mut analysis = Analysis::new(meter);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for number in 0..5000 {
            analysis.packet(&any_packet(&mut random, number));
        }
        serde_json::to_string(&analysis.finish().finish()).unwrap()
    }

    #[test]
    fn measures_are_the_same_without_a_thread_for_them() {
        let slice_ns = 1_000_000_000;
        let apart = measured_by(Bookkeeper::apart(slice_ns));
        assert_eq!(apart, measured_by(Bookkeeper::Here(Ledger::new(slice_ns))));
    }
}
