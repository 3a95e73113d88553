//! Packets per second of CPU time, and memory per connection, of the analysis of packets in memory:
//! `cargo bench -p pillion-trace --bench flows`. A part of a name selects streams, as in `-- "400
//! thin"`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use pillion_trace::measure::{self, Meter};
use pillion_trace::{
    Analysis, Connection, Direction, Endpoint, Flags, Observer, Packet, Range, SackBlocks, pair,
};

/// The smallest observer that measures latency.
#[derive(Default)]
struct Latency {
    sum_ns: i64,
}

impl Observer for Latency {
    fn range(&mut self, _: &Connection, _: Direction, range: &Range) {
        self.sum_ns += range.ack_latency_ns().unwrap_or_default();
    }
}

/// CPU time of this process; unlike wall-clock time, it hardly depends on other processes.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("Linux always has CLOCK_PROCESS_CPUTIME_ID")
        .into()
}

#[global_allocator]
static HEAP: Counting = Counting;

fn main() {
    let name_filter = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench");
    let name_filter = name_filter.unwrap_or_default();
    println!(
        "| traces | streams | measures | packets | million packets per CPU second | KiB a stream |"
    );
    println!("|---|---|---|---|---|---|");
    for (streams, name, kind) in [
        (25, "25 thin", Kind::Thin),
        (25, "25 thin, bundling", Kind::Bundled),
        (25, "25 greedy, 1 % retransmitted", Kind::Greedy),
        (1, "1 greedy, changed on the way", Kind::Changed),
        (400, "400 thin", Kind::Thin),
        (400, "400 thin, bundling", Kind::Bundled),
        (10_000, "10,000 thin", Kind::Thin),
        (10_000, "10,000 thin, bundling", Kind::Bundled),
    ] {
        if !name.contains(&name_filter) {
            continue;
        }
        let packets = packets_of(kind, streams, 1_100_000);
        let row = |traces, measures, count, analyse: &dyn Fn()| {
            row([traces, name, measures], streams, count, analyse);
        };
        let count = packets.len();
        row("one", "ACK latency", count, &|| {
            black_box(one(&packets, Latency::default()));
        });
        row("one", "all", count, &|| {
            black_box(one(&packets, meter()));
        });
        let [here, there] = both_ends(kind, &packets);
        drop(packets);
        let count = here.len() + there.len();
        row("two", "ACK latency", count, &|| {
            black_box(measure_pair(&here, &there, Latency::default()));
        });
        row("two", "all", count, &|| {
            black_box(measure_pair(&here, &there, meter()));
        });
    }
}

fn meter() -> Meter {
    Meter::new(measure::MeterOptions::default())
}

fn one<O: Observer>(packets: &[Packet], observer: O) -> O {
    let mut analysis = Analysis::new(observer);
    for packet in packets {
        analysis.packet(packet);
    }
    analysis.finish()
}

fn measure_pair<O: Observer>(here: &[Packet], there: &[Packet], observer: O) -> O {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    pair::analyse(here, there, &pair::PairOptions::default(), observer).0
}

fn row(labels: [&str; 3], streams: u64, packets: usize, analyse: &dyn Fn()) {
    let allocated = peak_during(analyse);
    let best = (0..3)
        .map(|_| {
            let start = cpu_time();
            analyse();
            cpu_time() - start
        })
        .min()
        .expect("there are three");
    let rate = packets as f64 / best.as_secs_f64() / 1e6;
    let allocated = allocated as f64 / streams as f64 / 1024.0;
    println!(
        "| {} | {packets} | {rate:.1} | {allocated:.1} |",
        labels.join(" | ")
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// 120 bytes each 30 ms, acknowledged 150 ms later.
    Thin,
    /// Thin streams; each segment bundles the previous one.
    Bundled,
    /// 1,448 bytes each 1 ms, one ACK per two segments. One in a hundred is retransmitted after 150
    /// ms, with duplicate ACKs until then.
    Greedy,
    /// 1,448 bytes each 25 microseconds, one ACK per two segments. Each data packet is changed on
    /// the path, as by a middlebox that rewrites windows.
    Changed,
}

const MS: i64 = 1_000_000;

/// About `count` packets of this many streams (at most 25,000), interleaved.
fn packets_of(kind: Kind, streams: u64, count: usize) -> Vec<Packet> {
    let per_stream = count as u64 / streams;
    let mut all: Vec<Packet> = (0..streams)
        .flat_map(|stream| match kind {
            Kind::Greedy => greedy(stream, per_stream, MS, 100),
            Kind::Changed => greedy(stream, per_stream, MS / 40, u64::MAX),
            _ => thin(stream, per_stream / 2, kind == Kind::Bundled),
        })
        .collect();
    all.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut all) {
        packet.number = number;
    }
    all
}

/// The traces at both ends, 20 ms apart. Each misses every tenth packet that the other shows first.
fn both_ends(kind: Kind, packets: &[Packet]) -> [Vec<Packet>; 2] {
    let from_client = |packet: &Packet| packet.to.port == 80;
    let lost = |packet: &Packet| packet.number.is_multiple_of(10);
    let here = packets
        .iter()
        .filter(|packet| from_client(packet) || !lost(packet));
    let there = packets
        .iter()
        .filter(|packet| !from_client(packet) || !lost(packet));
    let mut there: Vec<Packet> = there.copied().collect();
    for packet in &mut there {
        let way_ns = if from_client(packet) {
            20 * MS
        } else {
            -20 * MS
        };
        packet.at_ns += way_ns;
        if kind == Kind::Changed && packet.payload_len > 0 {
            packet.window += 1;
        }
    }
    there.sort_by_key(|packet| packet.at_ns);
    [here.copied().collect(), there]
}

fn thin(stream: u64, messages: u64, bundled: bool) -> Vec<Packet> {
    let mut packets = Vec::new();
    for message in 0..messages {
        let at_ns = message as i64 * 30 * MS + stream as i64;
        let seq = message as u32 * 120;
        let old = if bundled && message > 0 { 120 } else { 0 };
        packets.push(data(stream, at_ns, seq - old, 120 + old));
        packets.push(ack(stream, at_ns + 150 * MS, seq + 120, None));
    }
    packets
}

/// `every_ns`: time between two segments. One segment in a fixed number is retransmitted.
fn greedy(stream: u64, count: u64, every_ns: i64, one_of: u64) -> Vec<Packet> {
    let segments = count * 2 / 3;
    let lost = |segment: u64| segment % one_of == 50;
    let mut packets = Vec::new();
    for segment in 0..segments {
        let at_ns = segment as i64 * every_ns + stream as i64;
        let seq = segment as u32 * 1448;
        packets.push(data(stream, at_ns, seq, 1448));
        // The missing segment, if any, that stops the cumulative ACK when this one arrives.
        let missing = (segment.saturating_sub(50)..=segment).find(|&segment| lost(segment));
        match missing {
            None if segment % 2 == 1 => {
                packets.push(ack(stream, at_ns + 50 * MS, seq + 1448, None));
            }
            Some(missing) if missing < segment => {
                let hole = missing as u32 * 1448;
                let sack = (hole + 1448, seq + 1448);
                packets.push(ack(stream, at_ns + 50 * MS, hole, Some(sack)));
                if segment - missing == 50 {
                    packets.push(data(stream, at_ns, hole, 1448));
                }
            }
            _ => {}
        }
    }
    packets
}

fn data(stream: u64, at_ns: i64, seq: u32, len: u32) -> Packet {
    let (from, to) = ends(stream);
    Packet {
        number: 0,
        at_ns,
        interface: 0,
        from,
        to,
        frame_len: 66 + len,
        header_len: 52,
        payload_len: len,
        seq,
        ack: Some(1),
        flags: Flags::default(),
        window: 500,
        ip_id: Some((at_ns / 1000) as u16),
        timestamps: None,
        sack: SackBlocks::default(),
        mss: None,
        window_scale: None,
    }
}

fn ack(stream: u64, at_ns: i64, ack: u32, block: Option<(u32, u32)>) -> Packet {
    let mut packet = data(stream, at_ns, 1, 0);
    (packet.from, packet.to) = (packet.to, packet.from);
    packet.ack = Some(ack);
    if let Some((left, right)) = block {
        packet.sack.push(left, right);
    }
    packet
}

fn ends(stream: u64) -> (Endpoint, Endpoint) {
    let client = SocketAddr::from(([192, 0, 2, 1], 40_000 + stream as u16));
    let server = SocketAddr::from(([198, 51, 100, 1], 80));
    (client.into(), server.into())
}

/// The system's allocator with counters.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(allocated, Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Peak bytes allocated during `work`, above those allocated before.
fn peak_during(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    PEAK.load(Relaxed) - before
}
