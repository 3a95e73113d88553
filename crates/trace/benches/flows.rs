//! Packets per second of CPU time of the analysis alone, on packets made in memory:
//! `cargo bench -p pillion-trace --bench flows`.

#[path = "flows/conversation.rs"]
mod conversation;

use std::hint::black_box;
use std::time::Duration;

use conversation::Kind;
use nix::time::{ClockId, clock_gettime};
use pillion_trace::pair::{self, Options};
use pillion_trace::{Analysis, Connection, Direction, Observer, Range};

/// Looks at each range, as a measure would.
#[derive(Default)]
struct Latency {
    ranges: u64,
    sum_ns: i64,
}

impl Observer for Latency {
    fn range(&mut self, _: &Connection, _: Direction, range: &Range) {
        self.ranges += 1;
        self.sum_ns += range.ack_latency_ns().unwrap_or_default();
    }
}

/// Of this process; unlike time on the clock, it hardly depends on what else runs.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("Linux always has CLOCK_PROCESS_CPUTIME_ID")
        .into()
}

fn main() {
    println!("| traces | streams | packets | byte ranges | million packets per CPU second |");
    println!("|---|---|---|---|---|");
    for (name, kind) in [
        ("20 thin", Kind::Thin),
        ("20 thin, bundling", Kind::Bundled),
        ("20 greedy, 1 % sent again", Kind::Greedy),
    ] {
        let packets = conversation::packets(kind, 1_100_000);
        row("one", name, packets.len(), || {
            let mut analysis = Analysis::new(Latency::default());
            for packet in &packets {
                analysis.packet(packet);
            }
            analysis.finish()
        });
        let [here, there] = conversation::both_ends(&packets);
        drop(packets);
        row("two", name, here.len() + there.len(), || {
            let (here, there) = (here.iter().copied(), there.iter().copied());
            pair::analyse(here, there, &Options::default(), Latency::default()).0
        });
    }
}

fn row(traces: &str, name: &str, packets: usize, analyse: impl Fn() -> Latency) {
    let best = (0..3)
        .map(|_| {
            let begin = cpu_time();
            let latency = analyse();
            black_box(latency.sum_ns);
            (cpu_time() - begin, latency.ranges)
        })
        .min()
        .expect("there are three");
    let (time, ranges) = best;
    let rate = packets as f64 / time.as_secs_f64() / 1e6;
    println!("| {traces} | {name} | {packets} | {ranges} | {rate:.1} |");
}
