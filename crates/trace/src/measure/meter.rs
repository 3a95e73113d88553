use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle, available_parallelism};

use super::batch::{
    AckSample, Batch, BatchEntry, FinishedConnection, RangeSample, SentSample, TransitSample,
};
use super::ledger::Ledger;
use super::options::MeterOptions;
use super::results::Results;
use crate::event::{Disposition, PathDirection};
use crate::pair::Clock;
use crate::{
    ArrivedPacket, ClockOffset, Connection, Direction, Observer, Range, ReceivedAck, SentPacket,
};

/// An observer that measures all events and returns [`Results`].
///
/// The meter collects samples with their times since the first packet. Another thread adds them to
/// the measures of each connection.
#[derive(Debug)]
pub struct Meter {
    options: MeterOptions,
    batch: Batch,
    /// Entries in the batch.
    count: usize,
    pub(super) ledger: LedgerHandle,
    ahead: ClockOffset,
    span_ns: Option<(i64, i64)>,
}

/// Entries per batch: enough that waking the other thread is cheap, even if it waits for a core.
const BATCH: usize = 4096;

impl Meter {
    /// Creates a meter.
    #[must_use]
    pub fn new(options: MeterOptions) -> Self {
        Self {
            batch: Batch::default(),
            count: 0,
            ledger: LedgerHandle::new(options.slice_ns),
            options,
            ahead: ClockOffset::Estimated(0),
            span_ns: None,
        }
    }

    /// Counts a new entry and flushes a full batch.
    #[inline]
    fn count_entry(&mut self) {
        self.count += 1;
        if self.count == BATCH {
            self.count = 0;
            self.flush_batch();
        }
    }

    fn flush_batch(&mut self) {
        self.batch.one_clock = self.ahead == ClockOffset::SameClock;
        self.ledger.apply(&mut self.batch);
    }

    /// Time at one end of the path, since the first packet, by the clock of the sender's trace.
    #[inline]
    fn since_ns(&mut self, way: PathDirection, at_ns: i64) -> i64 {
        let at_ns = match way {
            PathDirection::ToReceiver => at_ns,
            PathDirection::ToSender => match self.ahead {
                ClockOffset::SameClock => at_ns,
                ClockOffset::Estimated(ahead_ns) => at_ns.saturating_sub(ahead_ns),
            },
        };
        let (first_ns, last_ns) = self.span_ns.get_or_insert((at_ns, at_ns));
        *last_ns = at_ns.max(*last_ns);
        at_ns.saturating_sub(*first_ns)
    }

    /// Returns the results of one trace.
    #[must_use]
    pub fn finish(self) -> Results {
        self.results(None)
    }

    /// Returns the results of two traces.
    #[must_use]
    pub fn finish_pair(self, clock: &Clock) -> Results {
        self.results(Some(clock))
    }

    fn results(mut self, clock: Option<&Clock>) -> Results {
        self.flush_batch();
        let ledger = self.ledger.finish();
        ledger.results(&self.options, self.span_ns.unwrap_or_default(), clock)
    }
}

impl Observer for Meter {
    fn clocks(&mut self, ahead: ClockOffset) {
        self.ahead = ahead;
    }

    #[inline]
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        let since_ns = self.since_ns(connection.path_direction(sent.direction), sent.at_ns);
        self.batch.sent.push(BatchEntry {
            number: connection.number,
            since_ns,
            sample: SentSample::new(sent),
        });
        self.count_entry();
    }

    #[inline]
    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        let since_ns = self.since_ns(connection.path_direction(acked.direction), acked.at_ns);
        // Every second packet acknowledges nothing new.
        if acked.bytes == 0 && acked.rtt_ns.is_none() {
            return;
        }
        self.batch.acked.push(BatchEntry {
            number: connection.number,
            since_ns,
            sample: AckSample::new(acked),
        });
        self.count_entry();
    }

    #[inline]
    fn arrived(&mut self, connection: &Connection, arrived: &ArrivedPacket) {
        let far_end = connection.path_direction(arrived.direction.reverse());
        let since_ns = self.since_ns(far_end, arrived.at_ns);
        self.batch.arrived.push(BatchEntry {
            number: connection.number,
            since_ns,
            sample: *arrived,
        });
        self.count_entry();
    }

    #[inline]
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let far_end = connection.path_direction(direction.reverse());
        let has_receiver = connection.delivery_stats(direction).is_some();
        let readable_ns = range.delivery.and_then(|delivery| delivery.in_order_ns());
        let since_ns = readable_ns.map(|at_ns| self.since_ns(far_end, at_ns));
        self.batch.ranges.push(BatchEntry {
            number: connection.number,
            since_ns: since_ns.unwrap_or_default(),
            sample: RangeSample::new(range, direction, has_receiver),
        });
        self.count_entry();
    }

    #[inline]
    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        let since_ns = self.since_ns(disposition.path_direction, disposition.sent_ns);
        if !disposition.class.carries_data() {
            return;
        }
        self.batch.dispositions.push(BatchEntry {
            number: connection.number,
            since_ns,
            sample: TransitSample::new(disposition),
        });
        self.count_entry();
    }

    fn finished(&mut self, connection: &Connection) {
        let groups = self.options.groups.iter().enumerate();
        let groups = groups
            .filter(|(_, group)| group.contains(connection))
            .map(|(index, _)| index)
            .collect();
        let way = connection.path_direction(Direction::Forward);
        let opened_ns = connection.handshake.first_syn_ns;
        let opened_since_ns = opened_ns.map(|at_ns| self.since_ns(way, at_ns));
        let finished = FinishedConnection::new(connection, groups, opened_since_ns);
        self.batch.finished.push(finished);
        self.count_entry();
    }
}

/// Applies batches to a [`Ledger`]: on its own thread, or inline with one core or if no thread can
/// be started.
#[derive(Debug)]
pub(super) enum LedgerHandle {
    Thread(LedgerThread),
    Inline(Ledger),
}

#[derive(Debug)]
pub(super) struct LedgerThread {
    full_batches: SyncSender<Batch>,
    /// Applied batches, for reuse.
    returned_batches: Receiver<Batch>,
    thread: JoinHandle<Ledger>,
}

/// Maximum number of waiting batches.
const BATCHES: usize = 4;

impl LedgerHandle {
    pub(super) fn new(slice_ns: i64) -> Self {
        if available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            return Self::Inline(Ledger::new(slice_ns));
        }
        Self::on_thread(slice_ns)
    }

    fn on_thread(slice_ns: i64) -> Self {
        let (full_batches, received) = sync_channel::<Batch>(BATCHES);
        let (return_batch, returned_batches) = channel();
        let work = move || {
            let mut ledger = Ledger::new(slice_ns);
            for mut batch in received {
                ledger.apply(&mut batch);
                // Fails after the meter has dropped the receiver.
                let _ = return_batch.send(batch);
            }
            ledger
        };
        match Builder::new().spawn(work) {
            Ok(thread) => Self::Thread(LedgerThread {
                full_batches,
                returned_batches,
                thread,
            }),
            Err(_) => Self::Inline(Ledger::new(slice_ns)),
        }
    }

    /// Takes the contents of a batch and leaves an empty one.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        match self {
            Self::Thread(worker) => {
                let next = worker.returned_batches.try_recv().unwrap_or_default();
                // Fails only if the thread has panicked, which `finish` propagates.
                let _ = worker.full_batches.send(mem::replace(batch, next));
            }
            Self::Inline(ledger) => ledger.apply(batch),
        }
    }

    /// Waits until all batches are applied.
    pub(super) fn finish(self) -> Ledger {
        match self {
            Self::Thread(worker) => {
                drop(worker.full_batches);
                let ledger = worker.thread.join();
                ledger.unwrap_or_else(|panic| resume_unwind(panic))
            }
            Self::Inline(ledger) => ledger,
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

    fn measured_by(ledger: LedgerHandle) -> String {
        let mut meter = Meter::new(Default::default());
        meter.ledger = ledger;
        let mut analysis = Analysis::new(meter);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for number in 0..5000 {
            analysis.packet(&any_packet(&mut random, number));
        }
        serde_json::to_string(&analysis.finish().finish()).unwrap()
    }

    #[test]
    fn measures_are_equal_with_and_without_thread() {
        let slice_ns = 1_000_000_000;
        let worker = measured_by(LedgerHandle::on_thread(slice_ns));
        assert_eq!(
            worker,
            measured_by(LedgerHandle::Inline(Ledger::new(slice_ns)))
        );
    }
}
