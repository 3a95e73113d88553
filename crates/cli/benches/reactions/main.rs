//! What each reaction costs in latency: plain TCP, and bundling with each reaction, on paths
//! of their own with the same losses, at the same time. As root: `cargo bench -p pillion --bench reactions`; after `--`, `--help` shows
//! how to make it shorter.

mod args;
mod scene;
#[path = "../shared/mod.rs"]
mod shared;
mod table;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use pillion_lab::{Error, Group, GroupResult, run_together};
use pillion_report::number;

use args::Args;
use scene::{Scene, turns};
use shared::{PILLION, Variant, conclude, how_taken, may_measure, variants};

/// Beside the seconds of sending: the last bytes of a turn, and loading a path's programs.
const TURN_S: f64 = 10.0;
const PATH_S: f64 = 0.4;

/// One path: its scene's name, its variant's name, and what came of it.
struct Outcome {
    scene: String,
    variant: String,
    result: Result<GroupResult, Error>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !may_measure(args.bench) {
        return ExitCode::SUCCESS;
    }
    let how = how_taken(&format!(
        "{} streams of 120 B on each path, {} s, seed {}",
        args.streams, args.seconds, args.seed
    ));
    announce(&args);
    println!("{how}. Latencies and lateness in milliseconds.");
    let mut untrusted = 0;
    for loss in &args.losses {
        let percent = number::percent(loss / 100.0);
        match measure(&args, loss / 100.0) {
            Ok(outcomes) => {
                let (table, bad) = table::of(&outcomes);
                untrusted += bad;
                println!("\n### {percent} loss\n\n{}", table.to_markdown());
            }
            Err(error) => {
                eprintln!("loss {percent}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    conclude(untrusted)
}

fn announce(args: &Args) {
    let variants = variants(args.limits()).len();
    let scenes = Scene::all(args, 0.0);
    let paths = scenes.len() * variants;
    let turns = turns(scenes, variants, args.at_once).len();
    let seconds = turns as f64 * (args.seconds + TURN_S) + paths as f64 * PATH_S;
    let losses = args.losses.len();
    eprintln!(
        "loss rates: {losses}, paths at each: {paths}, in turns: {turns}; about {} s in all",
        number::count((losses as f64 * seconds) as u64)
    );
}

/// All combinations at one loss rate, 0 to 1.
fn measure(args: &Args, loss: f64) -> Result<Vec<Outcome>, Error> {
    let variants = variants(args.limits());
    let turns = turns(Scene::all(args, loss), variants.len(), args.at_once);
    let count = turns.len();
    let mut outcomes = Vec::new();
    for (turn, scenes) in turns.iter().enumerate() {
        eprintln!(
            "loss {}, turn {} of {count}",
            number::percent(loss),
            turn + 1
        );
        outcomes.extend(run_turn(scenes, &variants)?);
    }
    Ok(outcomes)
}

fn run_turn(scenes: &[Scene], variants: &[Variant]) -> Result<Vec<Outcome>, Error> {
    let (mut groups, mut names) = (Vec::new(), Vec::new());
    for scene in scenes {
        for variant in variants {
            let name = format!("{}, {}", scene.name, variant.name);
            let group = Group::start(&name, &scene.with(variant), Path::new(PILLION))?;
            groups.push(group);
            names.push((scene.name.clone(), variant.name.clone()));
        }
    }
    run_together(&mut groups)?;
    let outcome = |((scene, variant), group): ((String, String), Group)| Outcome {
        scene,
        variant,
        result: group.finish(),
    };
    Ok(names.into_iter().zip(groups).map(outcome).collect())
}
