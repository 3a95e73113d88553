//! Log of the packets in a link's queue, in the form of the queue probe.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::Instant;

use pillion_bpf::host::clock::monotonic_ns;

use crate::path::packet::{endpoints, segment};
use crate::queue::{Disposition, Length, Packet};

/// Sends each packet once it has left the queue, in order of departure.
pub(crate) struct QueueLog {
    to: Sender<Packet>,
    /// The same moment by both clocks, because `Instant` has no number.
    clock: (Instant, u64),
    waiting: VecDeque<WaitingPacket>,
    /// Bytes of all packets that entered the queue.
    entered_bytes: u64,
}

struct WaitingPacket {
    arrived: Instant,
    start: Instant,
    packet: Packet,
    /// Bytes of this packet and of all packets before it.
    entered_bytes: u64,
}

impl QueueLog {
    pub fn new(to: Sender<Packet>) -> Self {
        Self {
            to,
            clock: (Instant::now(), monotonic_ns()),
            waiting: VecDeque::new(),
            entered_bytes: 0,
        }
    }

    /// Logs a frame that arrives `now`, with the time at which it leaves the queue; `None` if the
    /// queue is full.
    pub fn arrive(&mut self, now: Instant, frame: &[u8], start: Option<Instant>) {
        self.send_until(now);
        let segment = segment(frame);
        let bytes = frame.len() as u32;
        let packet = Packet {
            arrived_ns: Some(self.ns(now)),
            left_ns: Some(self.ns(start.unwrap_or(now))),
            disposition: match start {
                Some(_) => Disposition::Sent,
                None => Disposition::Refused,
            },
            reason: 0,
            ends: endpoints(frame),
            seq: segment.seq,
            payload: segment.payload,
            flags: segment.flags,
            size: bytes,
            counted: bytes,
            segments: 1,
            queue: 0,
            found: Some(self.length(self.waiting.len(), self.left_bytes())),
            behind: None,
        };
        match start {
            Some(start) => {
                self.entered_bytes += u64::from(bytes);
                self.waiting.push_back(WaitingPacket {
                    arrived: now,
                    start,
                    packet,
                    entered_bytes: self.entered_bytes,
                });
                // A packet that waits for nothing leaves at once.
                self.send_until(now);
            }
            None => self.send(packet),
        }
    }

    /// Sends the remaining packets. The end of those in the queue is unseen.
    pub fn finish(mut self, now: Instant) {
        self.send_until(now);
        for waiting in std::mem::take(&mut self.waiting) {
            self.send(Packet {
                left_ns: None,
                disposition: Disposition::Unseen,
                ..waiting.packet
            });
        }
    }

    fn send_until(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|first| first.start <= now) {
            let Some(first) = self.waiting.pop_front() else {
                return;
            };
            let behind = self.waiting.partition_point(|it| it.arrived <= first.start);
            let length = self.length(behind, first.entered_bytes);
            self.send(Packet {
                behind: Some(length),
                ..first.packet
            });
        }
    }

    /// Returns the length of the first `packets` waiting packets. `left_bytes` are the bytes of all
    /// packets before them.
    fn length(&self, packets: usize, left_bytes: u64) -> Length {
        let last = packets.checked_sub(1).map(|last| &self.waiting[last]);
        Length {
            packets: packets as u32,
            bytes: last.map_or(0, |last| last.entered_bytes - left_bytes) as u32,
        }
    }

    /// Returns the bytes of all packets that have left the queue.
    fn left_bytes(&self) -> u64 {
        self.waiting.front().map_or(self.entered_bytes, |first| {
            first.entered_bytes - u64::from(first.packet.counted)
        })
    }

    fn send(&self, packet: Packet) {
        // Fails only if the recorder has failed; the run then reports its error.
        let _ = self.to.send(packet);
    }

    fn ns(&self, at: Instant) -> u64 {
        let (instant, ns) = self.clock;
        match at.checked_duration_since(instant) {
            Some(later) => ns + later.as_nanos() as u64,
            None => ns - (instant - at).as_nanos() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::path::packet::tests::ipv4;

    const MS: Duration = Duration::from_millis(1);

    fn packets(length: Option<Length>) -> Option<u32> {
        length.map(|length| length.packets)
    }

    #[test]
    fn queue_log_has_times_and_lengths_of_each_packet() {
        let (to, from) = channel();
        let mut log = QueueLog::new(to);
        let now = Instant::now();
        let frame = ipv4(6, 7001);
        log.arrive(now, &frame, Some(now + 5 * MS));
        log.arrive(now + MS, &frame, Some(now + 5 * MS));
        log.arrive(now + 2 * MS, &frame, None);
        log.arrive(now + 6 * MS, &frame, Some(now + 10 * MS));
        log.finish(now + 7 * MS);
        let logged: Vec<Packet> = from.iter().collect();
        let seen: Vec<_> = logged
            .iter()
            .map(|it| (it.disposition, packets(it.found), packets(it.behind)))
            .collect();
        assert_eq!(
            seen,
            [
                (Disposition::Refused, Some(2), None),
                (Disposition::Sent, Some(0), Some(1)),
                (Disposition::Sent, Some(1), Some(0)),
                (Disposition::Unseen, Some(0), None),
            ]
        );
        assert_eq!(logged[1].delay_ns(), Some(5_000_000));
        assert_eq!(logged[2].delay_ns(), Some(4_000_000));
        assert_eq!(logged[0].found.unwrap().bytes, 2 * frame.len() as u32);
        assert_eq!(logged[1].behind.unwrap().bytes, frame.len() as u32);
        assert_eq!(logged[1].ends.unwrap().destination.port(), 7001);
        assert_eq!(logged[3].left_ns, None);
    }
}
