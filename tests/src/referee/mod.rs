//! A referee: real connections of the real programs against a model that knows the truth.
//!
//! A game is drawn from a seed: an application that writes, a path that loses, doubles, delays
//! and reorders, and a receiver with a manner of its own. The sender is the kernel's TCP with
//! pillion; path and receiver are in here, behind a TAP device, so that it is known of each byte
//! when it left, by which packet it came, and what every ACK should tell. After each step what
//! pillion did is held against the rules, written down once more and in a few lines.

mod game;
mod judge;
mod ledger;
mod network;
mod receiver;
mod scenario;
mod tally;

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;

pub use tally::Tally;

use crate::isolated;
use game::Game;
use scenario::Scenario;

/// Plays one game. In the lab kernel it goes the same way each time.
///
/// # Panics
/// When a promise was broken, with the seed and what happened last.
#[must_use]
pub fn play(seed: u64) -> Tally {
    let scenario = Scenario::draw(&mut Pcg64::seed_from_u64(seed));
    let game = |scenario: Scenario| {
        let mut tally = None;
        isolated(|| tally = Game::begin(seed, scenario).play());
        tally
    };
    let (plain, bundled) = (game(scenario.plain()), game(scenario.clone()));
    let (without, with) = (duration(&plain), duration(&bundled));
    if let Some(without) = without.filter(|_| scenario.is_steady()) {
        assert!(
            with.is_some_and(|with| with <= 2 * without + PATIENCE),
            "seed {seed}: {with:?} with pillion, {without:?} without it\n{scenario:?}"
        );
    }
    bundled.unwrap_or_default()
}

/// How long a game took, if TCP did not give up.
fn duration(tally: &Option<Tally>) -> Option<Duration> {
    tally.as_ref().map(|tally| tally.duration)
}

/// How much longer than twice the time of plain TCP a game may take: what backing off costs, where
/// much is lost.
const PATIENCE: Duration = Duration::from_secs(60);
