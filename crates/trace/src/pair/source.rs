use std::mem;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crate::fetch::fetch;
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
    /// Takes back batches whose packets have been taken.
    emptied: Sender<Vec<Printed>>,
    batch: Vec<Printed>,
    place: usize,
}

/// The reader's end of a [`Source`].
#[derive(Debug)]
pub(crate) struct Handover {
    to: SyncSender<Vec<Printed>>,
    /// Batches to be filled again.
    empty: Receiver<Vec<Printed>>,
}

/// Packets that a reader hands over at one time: so many that waking the other thread costs
/// little.
const BATCH: usize = 2048;

/// Batches that may wait to be taken from a reader.
const BATCHES: usize = 4;

/// So many packets before its turn, a packet is fetched from the core that read it; without it the
/// merging thread waits for another core's cache with each packet.
const AHEAD: usize = 8;

impl Source {
    /// One that is empty yet, and the end for its reader.
    pub(crate) fn new() -> (Handover, Self) {
        let (to, from) = sync_channel(BATCHES);
        let (emptied, empty) = channel();
        let source = Self {
            from,
            emptied,
            batch: Vec::new(),
            place: 0,
        };
        (Handover { to, empty }, source)
    }

    /// Waits for so many packets, or for the end of the trace.
    pub(crate) fn wait_for(&mut self, packets: usize) {
        self.batch.reserve(packets + BATCH);
        while self.batch.len() < packets
            && let Ok(mut more) = self.from.recv()
        {
            self.batch.append(&mut more);
            self.give_back(more);
        }
    }

    fn give_back(&self, batch: Vec<Printed>) {
        // Nobody takes it once the whole trace has been read.
        let _ = self.emptied.send(batch);
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
            let emptied = mem::replace(&mut self.batch, batch);
            self.give_back(emptied);
            self.place = 0;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Printed> {
        self.batch.get(self.place)
    }

    /// The packet so many behind the first, if it has been read.
    #[inline]
    pub(crate) fn ahead(&self, packets: usize) -> Option<&Packet> {
        let ahead = self.batch.get(self.place + packets);
        ahead.map(|printed| &printed.packet)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.place += 1;
        if let Some(soon) = self.batch.get(self.place + AHEAD) {
            fetch(soon);
        }
    }
}

/// Hands all packets over, until nobody takes them.
pub(crate) fn read(mut packets: impl Iterator<Item = Packet>, handover: &Handover) {
    loop {
        let mut batch = handover.empty.try_recv().unwrap_or_default();
        batch.clear();
        batch.reserve(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = packets.next()
        {
            let print = fingerprint(&packet);
            batch.push(Printed { packet, print });
        }
        if batch.is_empty() || handover.to.send(batch).is_err() {
            return;
        }
    }
}
