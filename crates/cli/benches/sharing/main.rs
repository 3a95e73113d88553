//! Is bundling friendly to others? Greedy streams beside thin ones at a bottleneck of 5 Mbit/s
//! with a FIFO of 63 packets, RTT 150 ms (LCN 2015, table 3): thin streams that are plain TCP,
//! and that bundle with each limit and each reaction; one variant after the other. As root:
//! `cargo bench -p pillion --bench sharing`; after `--`, `--help` shows how to make it shorter.

mod args;
mod greedy;
mod share;
#[path = "../shared/mod.rs"]
mod shared;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use pillion_lab::{Group, GroupConfig, GroupResult, Seen, Watch, Way, run_together};
use pillion_report::number;

use args::Args;
use greedy::Greedy;
use share::Share;
use shared::{PILLION, Variant, conclude, how_taken, may_measure, variants};

/// Greedy streams fill the queue before the thin ones begin.
const WARM_UP: Duration = Duration::from_secs(10);
/// Beside the seconds of sending: that, loading the programs, and the last bytes.
const OVERHEAD_S: f64 = 15.0;
/// Where a group's receiver listens.
const THIN_PORT: u16 = 7777;

/// What came of one variant.
struct Outcome {
    thin_group: GroupResult,
    thin: Share,
    greedy: Share,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if !may_measure(args.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let how = how_taken(&format!(
        "{} greedy and {} thin streams, these of 120 B each {} ms; 5 Mbit/s, FIFO of 63 packets, \
         RTT 150 ms; {} s, seed {}",
        args.greedy, args.thin, args.itt, args.seconds, args.seed
    ));
    let variants = variants(&args.limits);
    let runs = args.congestions.len() * variants.len();
    let expected = (runs as f64 * (args.seconds + OVERHEAD_S)) as u64;
    eprintln!("{runs} runs, about {} s in all", number::count(expected));
    println!("{how}. Delivery latency and lateness in milliseconds.");
    let mut untrusted = 0;
    for congestion in &args.congestions {
        let mut table = table::empty();
        for variant in &variants {
            eprintln!("{congestion}: {}", variant.name);
            let config = config(&args, congestion, variant);
            let outcome = measure(&args, &config)
                .with_context(|| format!("{congestion}, {}", variant.name))?;
            let duration = Duration::from_secs_f64(args.seconds);
            let trusted = table::add(&mut table, &variant.name, &outcome, duration);
            untrusted += usize::from(!trusted);
        }
        println!("\n### {congestion}\n\n{}", table.to_markdown());
    }
    Ok(conclude(untrusted))
}

fn config(args: &Args, congestion: &str, variant: &Variant) -> GroupConfig {
    GroupConfig {
        streams: args.thin,
        size_bytes: 120,
        itt_ms: args.itt,
        itt_sd_ms: args.itt / 10.0,
        rtt_ms: 150.0,
        loss: 0.0,
        duration_s: args.seconds,
        rate_bps: Some(5_000_000),
        queue_packets: 63,
        congestion: congestion.to_owned(),
        seed: args.seed,
        bundling: variant.bundling.clone(),
    }
}

fn measure(args: &Args, config: &GroupConfig) -> Result<Outcome> {
    let mut groups = [Group::start("thin streams", config, Path::new(PILLION))?];
    let lane = groups[0].lane();
    lane.sender.send_segment_by_segment()?;
    let greedy = Greedy::start(lane, args.greedy, &config.congestion)?;
    thread::sleep(WARM_UP);
    let leaving = Watch::start(&lane.sender, Way::Out)?;
    let arriving = Watch::start(&lane.receiver, Way::In)?;
    run_together(&mut groups)?;
    // What is in the queue or under way still arrives.
    thread::sleep(Duration::from_millis(500));
    let sent = leaving.finish()?;
    let arrived = arriving.finish()?;
    greedy.stop().context("greedy streams")?;
    let [group] = groups;
    let thin_group = group.finish()?;
    let is_thin = |seen: &&Seen| seen.ports[1] == THIN_PORT;
    let begin = sent.iter().find(is_thin).context("no thin stream sent")?.at;
    let duration = Duration::from_secs_f64(args.seconds);
    let share = |port| Share::of(port, &sent, &arrived, begin, duration);
    Ok(Outcome {
        thin_group,
        thin: share(THIN_PORT),
        greedy: share(greedy::PORT),
    })
}
