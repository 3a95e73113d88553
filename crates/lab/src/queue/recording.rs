use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bpf::host::Ticks;

use crate::queue::probe::Probe;
use crate::queue::{Error, Packet, Target};

/// What a recording hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A packet, when its fate is known; so they come in the order in which they left.
    Packet(Packet),
    /// So many packets, or ends of packets, could not be noted since the last event.
    Missed(u64),
}

/// Watches the queue of a device until it is stopped.
#[derive(Debug)]
pub struct Recording {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

/// Time between two takings of what was seen; the kernel keeps 80,000 packets in between.
const INTERVAL: Duration = Duration::from_millis(10);

/// Intervals between two looks at what could not be noted, a second in all: each look costs a
/// system call for every program.
const COUNT_EVERY: u32 = 100;

impl Recording {
    /// Begins to watch a device's queue; from now on nothing is missed unseen. `sink` is called in
    /// a thread of its own.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Load`].
    pub fn start(
        target: &Target,
        sink: impl FnMut(Event) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, Error> {
        let probe = Probe::start(target)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || record(probe, &stopped, sink));
        Ok(Self { stop, thread })
    }

    /// True if the recording has ended early, because of an error; [`stop`](Self::stop) tells
    /// which.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the recording, and hands over what is left: last, the packets that are still in the
    /// queue.
    ///
    /// # Errors
    /// [`Error::Write`] with the sink's error; [`Error::System`].
    pub fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        let failed = |_| Err(Error::Write(io::Error::other("the thread failed")));
        self.thread.join().unwrap_or_else(failed)
    }
}

fn record(
    mut probe: Probe,
    stopped: &AtomicBool,
    mut sink: impl FnMut(Event) -> io::Result<()>,
) -> Result<(), Error> {
    let reader = probe.reader()?;
    let take = |sink: &mut dyn FnMut(Event) -> io::Result<()>| {
        let mut packets = reader.take()?.into_iter().map(Event::Packet);
        packets.try_for_each(sink).map_err(Error::Write)
    };
    let mut ticks: u32 = 0;
    let mut tick = Ticks::from_now(INTERVAL);
    while !stopped.load(Ordering::Relaxed) {
        tick.sleep();
        take(&mut sink)?;
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(COUNT_EVERY) {
            tell_missed(&mut probe, &mut sink)?;
        }
    }
    probe.detach();
    take(&mut sink)?;
    tell_missed(&mut probe, &mut sink)?;
    let left_over = probe.left_over().into_iter();
    let mut events = left_over.map(Event::Packet);
    events.try_for_each(sink).map_err(Error::Write)
}

fn tell_missed(
    probe: &mut Probe,
    sink: &mut impl FnMut(Event) -> io::Result<()>,
) -> Result<(), Error> {
    match probe.missed() {
        0 => Ok(()),
        missed => sink(Event::Missed(missed)).map_err(Error::Write),
    }
}
