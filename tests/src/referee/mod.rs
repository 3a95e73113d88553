//! Referee: compares connections of the real programs with a model that knows the ground truth.
//!
//! A seed selects a random scenario: the application's writes, a path with loss, duplicates, delay
//! and reordering, and a receiver with its own acknowledgement behaviour. The sender is the
//! kernel's TCP with pillion. The path and the receiver are simulated after a TAP device. So the
//! model knows when each byte left, which packet delivered it, and what every ACK must contain.
//! After each step pillion's results are compared with a second, short implementation of the rules.

mod ledger;
mod loss_model;
mod receiver;
mod scenario;
mod simulation;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;
use scenario::Scenario;
use simulation::Simulation;

use crate::isolated;

/// Runs the simulation of one seed. In the lab kernel it is deterministic.
///
/// # Panics
/// If pillion breaks a promise; the message has the seed and the last events.
#[must_use]
pub fn simulate(seed: u64) -> Statistics {
    let scenario = Scenario::random(&mut Pcg64::seed_from_u64(seed));
    let run = |scenario: Scenario| {
        let mut statistics = None;
        isolated(|| statistics = Simulation::start(seed, scenario).run());
        statistics
    };
    let (plain, bundled) = (run(scenario.plain()), run(scenario.clone()));
    let (without, with) = (duration(&plain), duration(&bundled));
    if let Some(without) = without.filter(|_| scenario.is_steady()) {
        assert!(
            with.is_some_and(|with| with <= 2 * without + EXTRA_DURATION),
            "seed {seed}: {with:?} with pillion, {without:?} without it\n{scenario:?}"
        );
    }
    bundled.unwrap_or_default()
}

/// Returns the duration of a simulation, unless TCP gave up.
fn duration(statistics: &Option<Statistics>) -> Option<Duration> {
    statistics.as_ref().map(|statistics| statistics.duration)
}

/// Time that a simulation may take beyond twice the time of plain TCP: the cost of backed-off
/// timeouts under heavy loss.
const EXTRA_DURATION: Duration = Duration::from_secs(60);

/// Statistics of one or more simulations.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Number of simulations.
    pub simulations: u64,
    /// Packets with data that were sent.
    pub packets: u64,
    /// Packets with new data that carried a bundle.
    pub bundles: u64,
    /// Packets that were sent once more.
    pub copies: u64,
    /// Hidden losses: lost segments that a bundle delivered before TCP reacted.
    pub hidden: u64,
    /// Segments detected as hidden losses.
    pub found: u64,
    /// Hidden losses missed because no ACK ended with the bundle.
    pub unacknowledged: u64,
    /// Segments detected as lost although they had arrived: their DSACK was lost, late, or about
    /// another range, and so were ACKs with SACK blocks of them.
    pub dsack_lost: u64,
    /// Window reductions requested from the kernel.
    pub reactions: u64,
    /// DSACKs that TCP saw.
    pub dsacks_seen: u64,
    /// DSACKs that TCP did not see.
    pub dsacks_removed: u64,
    /// Total duration of the simulations.
    pub duration: Duration,
}

impl Statistics {
    /// Adds the statistics of other simulations.
    pub fn add(&mut self, other: &Self) {
        let counts = self.counts_mut().into_iter().zip(other.counts());
        counts.for_each(|(sum, (_, more))| *sum += more);
        self.duration += other.duration;
    }

    fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("simulations", self.simulations),
            ("packets", self.packets),
            ("bundles", self.bundles),
            ("copies", self.copies),
            ("hidden losses", self.hidden),
            ("losses detected", self.found),
            ("missed: no ACK ends there", self.unacknowledged),
            ("false: DSACK was lost", self.dsack_lost),
            ("reactions", self.reactions),
            ("DSACKs seen by TCP", self.dsacks_seen),
            ("DSACKs removed", self.dsacks_removed),
        ]
    }

    fn counts_mut(&mut self) -> [&mut u64; 11] {
        [
            &mut self.simulations,
            &mut self.packets,
            &mut self.bundles,
            &mut self.copies,
            &mut self.hidden,
            &mut self.found,
            &mut self.unacknowledged,
            &mut self.dsack_lost,
            &mut self.reactions,
            &mut self.dsacks_seen,
            &mut self.dsacks_removed,
        ]
    }
}

/// Prints only the numbers, which `from_str` parses; `{:#}` prints one line per count.
impl fmt::Display for Statistics {
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

impl FromStr for Statistics {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut statistics = Self::default();
        let mut numbers = text.split(' ').map(str::parse);
        for (count, number) in statistics.counts_mut().into_iter().zip(&mut numbers) {
            *count = number?;
        }
        if let Some(us) = numbers.next() {
            statistics.duration = Duration::from_micros(us?);
        }
        Ok(statistics)
    }
}
