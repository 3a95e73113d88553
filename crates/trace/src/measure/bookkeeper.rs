use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle, available_parallelism};

use super::batch::Batch;
use super::ledger::Ledger;

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

    use super::super::meter::Meter;
    use super::*;
    use crate::Analysis;
    use crate::flows_property::any_packet;

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
