//! Packets per second of CPU time of the analysis alone, on packets made in memory:
//! `cargo bench -p pillion-trace --bench flows`.

#[path = "flows/conversation.rs"]
mod conversation;

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

fn main() {
    println!("| traces | streams | measures | packets | million packets per CPU second |");
    println!("|---|---|---|---|---|");
    for (name, kind) in [
        ("20 thin", Kind::Thin),
        ("20 thin, bundling", Kind::Bundled),
        ("20 greedy, 1 % sent again", Kind::Greedy),
    ] {
        let packets = conversation::packets(kind, 1_100_000);
        let count = packets.len();
        row(["one", name, "ACK latency"], count, || {
            one(&packets, Latency::default())
        });
        row(["one", name, "all"], count, || one(&packets, meter()));
        let [here, there] = conversation::both_ends(&packets);
        drop(packets);
        let count = here.len() + there.len();
        row(["two", name, "ACK latency"], count, || {
            two(&here, &there, Latency::default())
        });
        row(["two", name, "all"], count, || two(&here, &there, meter()));
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

fn row<O>(what: [&str; 3], packets: usize, analyse: impl Fn() -> O) {
    let best = (0..3)
        .map(|_| {
            let begin = cpu_time();
            black_box(analyse());
            cpu_time() - begin
        })
        .min()
        .expect("there are three");
    let rate = packets as f64 / best.as_secs_f64() / 1e6;
    println!("| {} | {packets} | {rate:.1} |", what.join(" | "));
}
