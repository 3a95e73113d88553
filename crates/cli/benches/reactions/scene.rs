//! What all variants of a comparison have in common, and how many are carried at once.

use pillion_lab::GroupConfig;

use crate::args::Args;
use crate::shared::Variant;

/// A combination of congestion control, RTT and inter-transmission time.
#[derive(Debug, Clone)]
pub struct Scene {
    pub name: String,
    /// Of plain TCP.
    pub config: GroupConfig,
}

impl Scene {
    /// All of one loss rate, 0 to 1.
    pub fn all(args: &Args, loss: f64) -> Vec<Self> {
        let mut scenes = Vec::new();
        for congestion in &args.congestions {
            for &rtt_ms in &args.rtts {
                for &itt_ms in &args.itts {
                    scenes.push(Self {
                        name: format!("{congestion}, RTT {rtt_ms} ms, ITT {itt_ms} ms"),
                        config: GroupConfig {
                            streams: args.streams,
                            size_bytes: 120,
                            itt_ms,
                            itt_sd_ms: itt_ms / 10.0,
                            rtt_ms,
                            loss,
                            duration_s: args.seconds,
                            rate_bps: None,
                            queue_packets: 1000,
                            congestion: congestion.clone(),
                            seed: args.seed,
                            bundling: None,
                        },
                    });
                }
            }
        }
        scenes
    }

    /// Messages per second on one path.
    fn rate(&self) -> f64 {
        self.config.streams as f64 * 1e3 / self.config.itt_ms
    }

    /// What a variant runs.
    pub fn with(&self, variant: &Variant) -> GroupConfig {
        GroupConfig {
            bundling: variant.bundling.clone(),
            ..self.config.clone()
        }
    }
}

/// Scenes in turns of at most so many messages per second over all variants, or of one scene.
pub fn turns(scenes: Vec<Scene>, variants: usize, max_rate: f64) -> Vec<Vec<Scene>> {
    let mut turns: Vec<Vec<Scene>> = Vec::new();
    let mut rate = f64::INFINITY;
    for scene in scenes {
        let more = scene.rate() * variants as f64;
        match turns.last_mut() {
            Some(turn) if rate + more <= max_rate => {
                rate += more;
                turn.push(scene);
            }
            _ => {
                rate = more;
                turns.push(vec![scene]);
            }
        }
    }
    turns
}
