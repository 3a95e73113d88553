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
mod receiver;
mod scenario;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use game::Game;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scenario::Scenario;

use crate::isolated;

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

/// What happened in a game, or in many.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Number of games.
    pub games: u64,
    /// Packets with data that left.
    pub packets: u64,
    /// Packets with new data that carried a bundle.
    pub bundles: u64,
    /// Hidden losses: segments that were lost, and that a bundle brought before TCP did anything
    /// about it.
    pub hidden: u64,
    /// Segments found to be hidden losses.
    pub found: u64,
    /// Hidden losses that were not found for want of an ACK that ends with the bundle.
    pub unacknowledged: u64,
    /// Segments found though they had come: the report of that was lost, or came late, or was of
    /// another range, and so were the ACKs that told of them behind a gap.
    pub report_lost: u64,
    /// Window reductions that the kernel was asked for.
    pub reactions: u64,
    /// Reports of duplicates that TCP saw.
    pub reports_seen: u64,
    /// Reports of duplicates that TCP did not see.
    pub reports_hidden: u64,
    /// How long the games took.
    pub duration: Duration,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        let counts = self.counts_mut().into_iter().zip(other.counts());
        counts.for_each(|(sum, (_, more))| *sum += more);
        self.duration += other.duration;
    }

    fn counts(&self) -> [(&'static str, u64); 10] {
        [
            ("games", self.games),
            ("packets", self.packets),
            ("bundles", self.bundles),
            ("losses hidden", self.hidden),
            ("losses found", self.found),
            ("not found, for no ACK ends there", self.unacknowledged),
            ("found, for a report was lost", self.report_lost),
            ("reactions", self.reactions),
            ("reports seen by TCP", self.reports_seen),
            ("reports hidden from TCP", self.reports_hidden),
        ]
    }

    fn counts_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.games,
            &mut self.packets,
            &mut self.bundles,
            &mut self.hidden,
            &mut self.found,
            &mut self.unacknowledged,
            &mut self.report_lost,
            &mut self.reactions,
            &mut self.reports_seen,
            &mut self.reports_hidden,
        ]
    }
}

/// Writes the numbers alone, as they are read again; or (`{:#}`) a line for each.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if f.alternate() {
            for (name, count) in self.counts() {
                writeln!(f, "{count:>12} {name}")?;
            }
            return write!(f, "{:>12.0} s of virtual time", self.duration.as_secs_f64());
        }
        for (_, count) in self.counts() {
            write!(f, "{count} ")?;
        }
        write!(f, "{}", self.duration.as_micros())
    }
}

impl FromStr for Tally {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut tally = Self::default();
        let mut numbers = text.split(' ').map(str::parse);
        for (count, number) in tally.counts_mut().into_iter().zip(&mut numbers) {
            *count = number?;
        }
        if let Some(us) = numbers.next() {
            tally.duration = Duration::from_micros(us?);
        }
        Ok(tally)
    }
}
