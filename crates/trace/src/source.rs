//! Packets of a trace, read by another thread.

use std::mem;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crate::packet::{Packet, fingerprint, flow_hash};
use crate::prefetch;

/// A packet and its hashes. Readers compute them, because only one thread analyses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FingerprintedPacket {
    pub(crate) packet: Packet,
    pub(crate) fingerprint: u64,
    pub(crate) flow_hash: u32,
}

impl FingerprintedPacket {
    #[inline]
    pub(crate) fn new(packet: Packet) -> Self {
        Self {
            fingerprint: fingerprint(&packet),
            flow_hash: flow_hash(&packet),
            packet,
        }
    }
}

/// The packets of one trace, received from its reader in batches.
#[derive(Debug)]
pub(crate) struct PacketSource {
    from: Receiver<Vec<FingerprintedPacket>>,
    /// Returns used batches to the reader.
    return_batches: Sender<Vec<FingerprintedPacket>>,
    batch: Vec<FingerprintedPacket>,
    next: usize,
}

/// The reader's end of a [`PacketSource`].
#[derive(Debug)]
pub(crate) struct PacketSink {
    to: SyncSender<Vec<FingerprintedPacket>>,
    /// Returned batches, for reuse.
    returned_batches: Receiver<Vec<FingerprintedPacket>>,
}

/// Packets per batch: enough that waking the other thread is cheap.
const BATCH: usize = 2048;

/// Maximum number of waiting batches per reader.
const BATCHES: usize = 4;

/// Distance in packets at which a packet is prefetched from the reader's core. Without it, the
/// merging thread waits for another core's cache with each packet.
const PREFETCH_PACKETS: usize = 8;

impl PacketSource {
    /// An empty source, and the sink for its reader.
    pub(crate) fn new() -> (PacketSink, Self) {
        let (to, from) = sync_channel(BATCHES);
        let (return_batches, returned_batches) = channel();
        let source = Self {
            from,
            return_batches,
            batch: Vec::new(),
            next: 0,
        };
        (
            PacketSink {
                to,
                returned_batches,
            },
            source,
        )
    }

    /// Waits for this many packets, or for the end of the trace.
    pub(crate) fn wait_for(&mut self, packets: usize) {
        self.batch.reserve(packets + BATCH);
        while self.batch.len() < packets
            && let Ok(mut more) = self.from.recv()
        {
            self.batch.append(&mut more);
            self.recycle(more);
        }
    }

    fn recycle(&self, batch: Vec<FingerprintedPacket>) {
        // Fails once the reader has finished.
        let _ = self.return_batches.send(batch);
    }

    /// The first packets, after [`wait_for`](Self::wait_for).
    pub(crate) fn lead(&self) -> &[FingerprintedPacket] {
        &self.batch
    }

    /// Makes the next packet available to [`first`](Self::first), if there is one.
    #[inline]
    pub(crate) fn fill(&mut self) {
        while self.next >= self.batch.len()
            && let Ok(batch) = self.from.recv()
        {
            let returned_batches = mem::replace(&mut self.batch, batch);
            self.recycle(returned_batches);
            self.next = 0;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&FingerprintedPacket> {
        self.batch.get(self.next)
    }

    /// The packet this far after the first, if already received.
    #[inline]
    pub(crate) fn peek(&self, packets: usize) -> Option<&FingerprintedPacket> {
        self.batch.get(self.next + packets)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next += 1;
        if let Some(upcoming) = self.batch.get(self.next + PREFETCH_PACKETS) {
            prefetch(upcoming);
        }
    }
}

/// Sends all packets, until the receiver is dropped.
pub(crate) fn read(mut packets: impl Iterator<Item = Packet>, sink: &PacketSink) {
    loop {
        let mut batch = sink.returned_batches.try_recv().unwrap_or_default();
        batch.clear();
        batch.reserve(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = packets.next()
        {
            batch.push(FingerprintedPacket::new(packet));
        }
        if batch.is_empty() || sink.to.send(batch).is_err() {
            return;
        }
    }
}
