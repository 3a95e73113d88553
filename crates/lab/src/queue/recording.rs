//! A recording of a queue's events, and an event as a row of a file.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bpf::host::Ticks;
use serde::{Deserialize, Serialize};

use crate::queue::probe::Probe;
use crate::queue::{Disposition, Endpoints, Error, Length, Packet, Reasons, Target};

/// An event of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A packet whose disposition is reasons; packets come in order of departure.
    Packet(Packet),
    /// Number of packets, or ends of packets, that were not recorded since the last event.
    Missed(u64),
}

/// Observes the queue of a device until it is stopped.
#[derive(Debug)]
pub struct Recording {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

/// Interval between two reads of the observations; the kernel stores 80,000 packets in between.
const INTERVAL: Duration = Duration::from_millis(10);

/// Intervals between two reads of the missed packets, one second in all: each read costs a system
/// call per program.
const MISSED_INTERVALS: u32 = 100;

impl Recording {
    /// Starts to observe a device's queue. Packets missed from now on are counted. Calls `sink` in
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

    /// Returns true if the recording has ended early, after an error; [`stop`](Self::stop) returns
    /// the error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the recording and passes on the remaining events; the packets still in the queue come
    /// last.
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
        if ticks.is_multiple_of(MISSED_INTERVALS) {
            report_missed(&mut probe, &mut sink)?;
        }
    }
    probe.detach();
    take(&mut sink)?;
    report_missed(&mut probe, &mut sink)?;
    let remaining = probe.remaining().into_iter();
    let mut events = remaining.map(Event::Packet);
    events.try_for_each(sink).map_err(Error::Write)
}

fn report_missed(
    probe: &mut Probe,
    sink: &mut impl FnMut(Event) -> io::Result<()>,
) -> Result<(), Error> {
    match probe.missed() {
        0 => Ok(()),
        missed => sink(Event::Missed(missed)).map_err(Error::Write),
    }
}

/// A packet as a row of a table: its fields are the columns; unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Row {
    /// [`Packet::arrived_ns`].
    pub arrived_ns: Option<u64>,
    /// [`Packet::left_ns`].
    pub left_ns: Option<u64>,
    /// [`Packet::disposition`]; `None` for a packet, or the end of one, that was not recorded; all
    /// other fields are unknown then.
    pub disposition: Option<Disposition>,
    /// The kernel's name for the reason of the drop; `None` if the packet was not dropped.
    pub reason: Option<String>,
    /// [`Endpoints::protocol`].
    pub protocol: Option<u8>,
    /// [`Endpoints::source`].
    pub source: Option<SocketAddr>,
    /// [`Endpoints::destination`].
    pub destination: Option<SocketAddr>,
    /// [`Packet::seq`].
    pub seq: u32,
    /// [`Packet::payload`].
    pub payload_bytes: u32,
    /// [`Packet::flags`].
    pub tcp_flags: u8,
    /// [`Packet::size`].
    pub size_bytes: u32,
    /// [`Packet::counted`].
    pub counted_bytes: u32,
    /// [`Packet::segments`].
    pub segments: u16,
    /// [`Packet::queue`].
    pub queue: u16,
    /// [`Packet::found`], in packets.
    pub found_packets: Option<u32>,
    /// [`Packet::found`], in bytes.
    pub found_bytes: Option<u32>,
    /// [`Packet::behind`], in packets.
    pub remaining_packets: Option<u32>,
    /// [`Packet::behind`], in bytes.
    pub remaining_bytes: Option<u32>,
}

impl Row {
    /// Returns the rows of an event: one per packet, or one per missed packet.
    pub fn of(event: &Event, reasons: &Reasons) -> impl Iterator<Item = Self> + use<> {
        let (row, times) = match event {
            Event::Packet(packet) => (Self::from_packet(packet, reasons), 1),
            Event::Missed(number) => (Self::default(), *number),
        };
        (0..times).map(move |_| row.clone())
    }

    fn from_packet(packet: &Packet, reasons: &Reasons) -> Self {
        let (ends, found, behind) = (packet.ends, packet.found, packet.behind);
        Self {
            arrived_ns: packet.arrived_ns,
            left_ns: packet.left_ns,
            disposition: Some(packet.disposition),
            reason: packet.is_dropped().then(|| reasons.name(packet.reason)),
            protocol: ends.map(|ends| ends.protocol),
            source: ends.map(|ends| ends.source),
            destination: ends.map(|ends| ends.destination),
            seq: packet.seq,
            payload_bytes: packet.payload,
            tcp_flags: packet.flags,
            size_bytes: packet.size,
            counted_bytes: packet.counted,
            segments: packet.segments,
            queue: packet.queue,
            found_packets: found.map(|length| length.packets),
            found_bytes: found.map(|length| length.bytes),
            remaining_packets: behind.map(|length| length.packets),
            remaining_bytes: behind.map(|length| length.bytes),
        }
    }

    /// Returns the event of the row. Adds new reasons to `reasons`.
    #[must_use]
    pub fn event(&self, reasons: &mut Reasons) -> Event {
        let Some(disposition) = self.disposition else {
            return Event::Missed(1);
        };
        let length = |packets: Option<u32>, bytes: Option<u32>| {
            let (packets, bytes) = packets.zip(bytes)?;
            Some(Length { packets, bytes })
        };
        let ends = self.protocol.zip(self.source).zip(self.destination);
        let ends = ends.map(|((protocol, source), destination)| Endpoints {
            protocol,
            source,
            destination,
        });
        Event::Packet(Packet {
            arrived_ns: self.arrived_ns,
            left_ns: self.left_ns,
            disposition,
            reason: self.reason.as_ref().map_or(0, |name| reasons.number(name)),
            ends,
            seq: self.seq,
            payload: self.payload_bytes,
            flags: self.tcp_flags,
            size: self.size_bytes,
            counted: self.counted_bytes,
            segments: self.segments,
            queue: self.queue,
            found: length(self.found_packets, self.found_bytes),
            behind: length(self.remaining_packets, self.remaining_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip_through_rows() {
        let mut reasons = Reasons::default();
        let reason = reasons.number("QDISC_OVERLIMIT");
        let dropped = Packet {
            arrived_ns: Some(1_000),
            left_ns: Some(2_000),
            disposition: Disposition::Refused,
            reason,
            ends: Some(Endpoints {
                protocol: 6,
                source: "10.0.0.1:1234".parse().unwrap(),
                destination: "[fd00::2]:80".parse().unwrap(),
            }),
            seq: u32::MAX,
            payload: 120,
            flags: 24,
            size: 186,
            counted: 190,
            segments: 1,
            queue: 3,
            found: Some(Length {
                packets: 20,
                bytes: 20_000,
            }),
            behind: None,
        };
        let unknown = Packet {
            arrived_ns: None,
            ends: None,
            found: None,
            disposition: Disposition::Sent,
            reason: 0,
            ..dropped
        };
        let events = [
            Event::Packet(dropped),
            Event::Missed(2),
            Event::Packet(unknown),
        ];
        let rows: Vec<Row> = events.iter().flat_map(|it| Row::of(it, &reasons)).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[0].reason.as_deref(), Some("QDISC_OVERLIMIT"));
        let mut found = Reasons::default();
        let read: Vec<Event> = rows.iter().map(|row| row.event(&mut found)).collect();
        let missed = Event::Missed(1);
        assert_eq!(read, [events[0], missed, missed, events[2]]);
        assert_eq!(found.name(reason), "QDISC_OVERLIMIT");
    }
}
