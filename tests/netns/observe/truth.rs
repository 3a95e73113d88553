
use std::time::Duration;
use std::{env, thread};

use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use super::{begin, end, interval, json, send_each, text};
use crate::common::*;

/// Environment variable: seconds of traffic on each path. By default one path is used for some
/// seconds.
const SECONDS: &str = "PILLION_ADVICE";

/// Path and traffic of one comparison.
struct Scene {
    name: &'static str,
    loss: Loss,
    /// Time between two messages of a stream, in milliseconds.
    itt: &'static str,
}

/// Returns the scenarios: independent losses, and bursts of two packets on average.
fn scenes() -> Vec<Scene> {
    let scene = |name, loss, itt| Scene { name, loss, itt };
    let bursts = Loss::GilbertElliott {
        to_bad: 0.025,
        to_good: 0.5,
        in_bad: 1.0,
        in_good: 0.0,
    };
    vec![
        scene("5 %", Loss::Uniform(0.05), "20"),
        scene("1 %", Loss::Uniform(0.01), "20"),
        scene("1 %", Loss::Uniform(0.01), "50"),
        scene("5 %", Loss::Uniform(0.05), "50"),
        scene("5 %", Loss::Uniform(0.05), "150"),
        scene("5 %, in bursts", bursts, "50"),
    ]
}

impl Scene {
    fn pair(&self, seed: u64) -> HostPair {
        let direction = |loss| Direction {
            loss,
            ..Direction::delayed(Duration::from_millis(50))
        };
        HostPair::create(&PathConfig {
            forward: direction(self.loss.clone()),
            backward: direction(Loss::Uniform(0.0)),
            seed,
        })
    }

    /// Observes twenty streams over a new path with a command. Returns its report.
    fn observed(&self, seed: u64, command: &[&str], seconds: &str) -> Value {
        let pair = self.pair(seed);
        let going = begin(&pair, command);
        send_each(&pair, self.itt, 7001, "20", seconds);
        json(&end(going))
    }

    /// Measures the average wait of a segment beyond the minimum RTT, in milliseconds: without
    /// bundles, the predicted saving, and with bundles.
    fn waited(&self, seconds: &str) -> Waited {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        // With nearly all connections bundled there is no comparison, so the trial never stops by
        // itself.
        let trial = ["trial", "--json", "--record", text(&record)];
        let trial = [&trial[..], &["--share", "99.95", "--draw-by", "connection"]].concat();
        let of_segments = |of: &Value| {
            let [waited, segments] = ["waited_us", "segments"].map(|it| of[it].as_f64().unwrap());
            waited / segments / 1e3
        };
        thread::scope(|scope| {
            let bundled = scope.spawn(|| self.observed(2, &trial, seconds));
            let advised = self.observed(1, &["advise", "--json"], seconds);
            let advice = &advised["advice"][0];
            Waited {
                plain: of_segments(advice),
                said: interval(&advice["saved_ms"]),
                bundled: of_segments(&bundled.join().unwrap()["bundled"]),
            }
        })
    }
}

struct Waited {
    plain: f64,
    said: (f64, f64),
    bundled: f64,
}

#[test]
fn what_is_said_to_be_saved_is_saved() {
    needs_root!();
    let given = env::var(SECONDS).ok();
    let scenes = scenes();
    let scenes = match given {
        Some(_) => &scenes[..],
        None => &scenes[..1],
    };
    println!("loss             ITT    wait: plain  bundled    saved  predicted");
    for scene in scenes {
        let Waited {
            plain,
            said: (low, high),
            bundled,
        } = scene.waited(given.as_deref().unwrap_or("12"));
        let saved = plain - bundled;
        println!(
            "{:<15} {:>4} {plain:>14.1} {bundled:>8.1} {saved:>8.1}  {low:.1} to {high:.1} ms",
            scene.name, scene.itt
        );
        // Both are measured on different streams.
        let far = low * 0.5 - 1.0..high * 1.5 + 1.0;
        assert!(far.contains(&saved), "{}, {} ms", scene.name, scene.itt);
    }
}
