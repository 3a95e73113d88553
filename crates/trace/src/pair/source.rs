use std::sync::mpsc::{Receiver, SyncSender};

use crate::fingerprint::fingerprint;
use crate::packet::Packet;

/// A packet and its fingerprint, which the reader takes: there are two readers, and one that
/// brings together what they read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printed {
    pub(crate) packet: Packet,
    pub(crate) print: u64,
}

/// The packets of one trace as its reader hands them over, many at a time.
#[derive(Debug)]
pub(crate) struct Source {
    from: Receiver<Vec<Printed>>,
    batch: Vec<Printed>,
    place: usize,
}

/// Packets that a reader hands over at one time, few enough that an allocator keeps their memory
/// at hand.
const BATCH: usize = 512;

impl Source {
    /// Waits for so many packets, or for the end of the trace.
    pub(crate) fn new(from: Receiver<Vec<Printed>>, packets: usize) -> Self {
        let mut batch = Vec::new();
        while batch.len() < packets
            && let Ok(more) = from.recv()
        {
            batch.extend(more);
        }
        Self {
            from,
            batch,
            place: 0,
        }
    }

    /// The packets that were waited for.
    pub(crate) fn beginning(&self) -> &[Printed] {
        &self.batch
    }

    /// Makes sure that [`first`](Self::first) is the next packet, if there is one.
    #[inline]
    pub(crate) fn fill(&mut self) {
        while self.place >= self.batch.len()
            && let Ok(batch) = self.from.recv()
        {
            self.batch = batch;
            self.place = 0;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Printed> {
        self.batch.get(self.place)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.place += 1;
    }
}

/// Hands all packets over, until nobody takes them.
pub(crate) fn read(mut packets: impl Iterator<Item = Packet>, to: &SyncSender<Vec<Printed>>) {
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = packets.next()
        {
            let print = fingerprint(&packet);
            batch.push(Printed { packet, print });
        }
        if batch.is_empty() || to.send(batch).is_err() {
            return;
        }
    }
}
