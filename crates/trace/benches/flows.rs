//! Packets per second of CPU time, and memory for each connection, of the analysis alone, on
//! packets made in memory: `cargo bench -p pillion-trace --bench flows`; of some streams alone with
//! a part of their name behind it, as in `-- "400 thin"`.

#[path = "flows/conversation.rs"]
mod conversation;
#[path = "flows/heap.rs"]
mod heap;

use std::hint::black_box;
use std::time::Duration;

use conversation::Kind;
use nix::time::{ClockId, clock_gettime};
use pillion_trace::measure::{self, Meter};
use pillion_trace::{Analysis, Connection, Direction, Observer, Packet, Range, pair};

/// The least that a measure does.
#[derive(Default)]
struct Latency {
    sum_ns: i64,
}

impl Observer for Latency {
    fn range(&mut self, _: &Connection, _: Direction, range: &Range) {
        self.sum_ns += range.ack_latency_ns().unwrap_or_default();
    }
}

/// Of this process; unlike time on the clock, it hardly depends on what else runs.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("Linux always has CLOCK_PROCESS_CPUTIME_ID")
        .into()
}

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench");
    let wanted = wanted.unwrap_or_default();
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
        if !name.contains(&wanted) {
            continue;
        }
        let packets = conversation::packets(kind, streams, 1_100_000);
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
        let [here, there] = conversation::both_ends(kind, &packets);
        drop(packets);
        let count = here.len() + there.len();
        row("two", "ACK latency", count, &|| {
            black_box(two(&here, &there, Latency::default()));
        });
        row("two", "all", count, &|| {
            black_box(two(&here, &there, meter()));
        });
    }
}

fn meter() -> Meter {
    Meter::new(measure::Options::default())
}

fn one<O: Observer>(packets: &[Packet], observer: O) -> O {
    let mut analysis = Analysis::new(observer);
    for packet in packets {
        analysis.packet(packet);
    }
    analysis.finish()
}

fn two<O: Observer>(here: &[Packet], there: &[Packet], observer: O) -> O {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    pair::analyse(here, there, &pair::Options::default(), observer).0
}

fn row(what: [&str; 3], streams: u64, packets: usize, analyse: &dyn Fn()) {
    let held = heap::most_during(analyse);
    let best = (0..3)
        .map(|_| {
            let begin = cpu_time();
            analyse();
            cpu_time() - begin
        })
        .min()
        .expect("there are three");
    let rate = packets as f64 / best.as_secs_f64() / 1e6;
    let held = held as f64 / streams as f64 / 1024.0;
    println!(
        "| {} | {packets} | {rate:.1} | {held:.1} |",
        what.join(" | ")
    );
}
