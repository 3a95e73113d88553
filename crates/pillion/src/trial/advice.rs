//! What watching tells of connections that are not bundled. docs/advise.md has the model.

use std::net::IpAddr;

use pillion_bpf::{Direction, Observation};
use pillion_stats::measure::share;
use serde::Serialize;

use crate::trial::estimate::{Sample, generator};
use crate::trial::{Estimate, Of, Summary};

/// Segments below which nothing is said of a group.
const FEWEST_SEGMENTS: u64 = 100;

/// Losses below which nothing is said of how they could be repaired.
const FEWEST_LOSSES: u64 = 10;

/// The share of losses that bundles are to repair, to be worth while.
const WORTH_WHILE: f64 = 0.25;

/// One in so many segments with a bundle to hold back is next to none.
const FEW: u64 = 100;

/// A connection that was watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The name of the process that has the connection; `None` if it was not found.
    pub process: Option<String>,
    /// The service.
    pub service: Service,
    /// Which end has it is a guess.
    pub guessed: bool,
    /// The peer.
    pub peer: IpAddr,
    /// What was observed.
    pub summary: Summary,
}

/// The port of a service, and which end it is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// A service of this host.
    Local(u16),
    /// A service of the peer.
    Remote(u16),
}

impl Service {
    /// The service of a connection: at the end that did not open it; where that is not known, at
    /// the one with the lower port.
    #[must_use]
    pub fn of(seen: &Observation) -> Self {
        let (local, remote) = (seen.local.port(), seen.peer.port());
        match seen.direction {
            Some(Direction::Accept) => Self::Local(local),
            Some(Direction::Connect) => Self::Remote(remote),
            None if local <= remote => Self::Local(local),
            None => Self::Remote(remote),
        }
    }
}

/// What is to be said of connections with one process and service, or of those of them with one
/// peer.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// The name of the process; `None` if it was not found.
    pub process: Option<String>,
    /// The service.
    pub service: Service,
    /// Of none of them is it known which end has it.
    pub guessed: bool,
    /// The peer, where its connections are told apart.
    pub peer: Option<IpAddr>,
    /// What was observed.
    #[serde(flatten)]
    pub summary: Summary,
    /// The share of segments that were lost, as far as is known.
    pub loss: Option<Estimate>,
    /// The share of losses that bundles would have repaired.
    pub repairable: Option<Estimate>,
    /// By how much less a segment would have waited on average, in milliseconds.
    pub saved_ms: Option<Estimate>,
    /// By how much less it would have waited, at most, with a copy of each segment in place of bundles.
    pub copies_saved_ms: Option<Estimate>,
    /// Bytes that would have been added, as a share of the payload.
    pub added: Option<Estimate>,
    /// What follows.
    pub finding: Finding,
}

/// What follows from what was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Bundles would have repaired losses.
    Bundle,
    /// Too few segments to say anything.
    TooFewSegments,
    /// Too few losses to say what bundles would have made of them.
    TooFewLosses,
    /// Too few connections to say what bundles would make of others' losses.
    TooFewConnections,
    /// The streams were not thin as a rule.
    NotThin,
    /// Each message was acknowledged before the next: nothing could ride along.
    Alone,
    /// The messages leave no room in a segment for one before.
    NoRoom,
    /// The peers offer no SACK, and without it nothing is bundled unless asked for.
    NoSack,
    /// Nothing could be bundled for other reasons, which the outcomes of segments tell.
    Ineligible,
    /// Bundles would have repaired few of the losses.
    LittleToRepair,
}

/// Losses as far as is known: what the receiver had already was none.
fn losses(all: &Summary) -> u64 {
    all.lost.saturating_sub(all.needless)
}

/// The share of retransmissions that were needed: the model takes all for losses.
fn needed(all: &Summary) -> f64 {
    share(losses(all), all.lost).unwrap_or(0.0)
}

/// What a segment waits less on average, in milliseconds, where it is so much for all together.
fn each_ms(saved_us: u64, all: &Summary) -> Option<f64> {
    share(saved_us, all.segments).map(|us| us * needed(all) / 1e3)
}

const LOSS: Of = |all| share(losses(all), all.segments);
const REPAIRABLE: Of = |all| share(all.repairable, losses(all));
const SAVED_MS: Of = |all| each_ms(all.saved_us, all);
const COPIES_SAVED_MS: Of = |all| each_ms(all.copies_saved_us, all);
const ADDED: Of = |all| share(all.held_back_bytes, all.new_bytes);

/// What is to be said of these together, in a group of no name yet: with so few units, nothing that is
/// to hold for others. The same units give the same intervals.
pub(crate) fn of(units: &[&Summary], fewest: usize) -> Advice {
    let sample = Sample::new(units, units.len(), &mut generator(units.len() as u64));
    let summary = sample.sum.clone();
    let widened =
        |estimate: Option<Estimate>, whole| estimate.map(|estimate| widen(estimate, whole));
    let repairable = widened(sample.estimate(REPAIRABLE), losses(&summary));
    Advice {
        process: None,
        service: Service::Local(0),
        guessed: false,
        peer: None,
        loss: widened(sample.estimate(LOSS), summary.segments),
        repairable,
        saved_ms: sample.estimate(SAVED_MS),
        copies_saved_ms: sample.estimate(COPIES_SAVED_MS),
        added: sample.estimate(ADDED),
        finding: match finding(&summary, repairable) {
            Finding::Bundle | Finding::LittleToRepair if units.len() < fewest => {
                Finding::TooFewConnections
            }
            finding => finding,
        },
        summary,
    }
}

fn finding(all: &Summary, repairable: Option<Estimate>) -> Finding {
    if all.segments < FEWEST_SEGMENTS {
        return Finding::TooFewSegments;
    }
    let interval = repairable.and_then(|estimate| estimate.interval);
    match interval.filter(|_| losses(all) >= FEWEST_LOSSES) {
        Some((low, _)) if low >= WORTH_WHILE => Finding::Bundle,
        _ if all.held_back * FEW <= all.sent => why_nothing(all),
        Some((_, high)) if high < WORTH_WHILE => Finding::LittleToRepair,
        _ => Finding::TooFewLosses,
    }
}

/// What kept most segments from having a bundle, of connections of which next to none had one.
fn why_nothing(all: &Summary) -> Finding {
    let known = [
        (all.alone, Finding::Alone),
        (all.not_thin, Finding::NotThin),
        (all.no_room, Finding::NoRoom),
        (all.no_sack, Finding::NoSack),
    ];
    let told: u64 = known.iter().map(|(count, _)| count).sum();
    let others = (all.sent.saturating_sub(told), Finding::Ineligible);
    let most = known
        .into_iter()
        .chain([others])
        .max_by_key(|(count, _)| *count);
    most.map_or(Finding::Ineligible, |(_, finding)| finding)
}

/// A share of so many, with an interval at least as wide as it would be if all were independent
/// (E. B. Wilson, 1927): few connections that happen to agree are no certainty.
fn widen(estimate: Estimate, whole: u64) -> Estimate {
    const Z: f64 = 1.96;
    let (p, n) = (estimate.value.min(1.0), whole as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let (low, high) = ((middle - half).max(0.0), (middle + half).min(1.0));
    let (other_low, other_high) = estimate.interval.unwrap_or((low, high));
    Estimate {
        interval: Some((low.min(other_low), high.max(other_high))),
        ..estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Gathered;

    fn watched(lost: u64, repairable: u64) -> Watched {
        Watched {
            process: Some("game".to_owned()),
            service: Service::Local(7777),
            guessed: false,
            peer: "192.0.2.1".parse().unwrap(),
            summary: Summary {
                connections: 1,
                segments: 1000,
                sent: 1000,
                held_back: 900,
                lost,
                repairable,
                saved_us: 200_000 * repairable,
                copies_saved_us: 200_000 * lost,
                ..Summary::default()
            },
        }
    }

    fn advise(watched: &[Watched], by_peer: bool) -> Vec<Advice> {
        let mut gathered = Gathered::new(by_peer);
        gathered.extend(watched.iter().cloned());
        gathered.advise()
    }

    fn finding_of(watched: &[Watched]) -> Finding {
        advise(watched, false)[0].finding
    }

    #[test]
    fn many_losses_that_bundles_would_have_repaired_speak_for_them() {
        let advice = &advise(&vec![watched(20, 18); 6], false)[0];
        assert_eq!(advice.finding, Finding::Bundle);
        assert_eq!((advice.summary.connections, advice.summary.lost), (6, 120));
        let (low, high) = advice.repairable.unwrap().interval.unwrap();
        assert!(
            low > 0.8 && low < 0.9 && high > 0.9 && high < 1.0,
            "{low} {high}"
        );
    }

    #[test]
    fn few_losses_say_nothing() {
        assert_eq!(finding_of(&[watched(9, 9)]), Finding::TooFewLosses);
        // Enough of them, but they do not agree.
        assert_eq!(finding_of(&[watched(12, 4)]), Finding::TooFewLosses);
    }

    #[test]
    fn few_connections_say_nothing_however_many_they_lost() {
        for repairable in [0, 100] {
            let few = vec![watched(100, repairable); 4];
            assert_eq!(finding_of(&few), Finding::TooFewConnections);
            // What is said of a peer is to hold for that peer alone.
            let of_peer = advise(&few, true)[0].finding;
            assert_ne!(of_peer, Finding::TooFewConnections);
        }
    }

    #[test]
    fn losses_that_nothing_followed_speak_against_them() {
        assert_eq!(
            finding_of(&vec![watched(50, 2); 6]),
            Finding::LittleToRepair
        );
    }

    #[test]
    fn a_handful_of_bundles_hides_nothing_of_what_kept_all_others_from_having_one() {
        let mut it = watched(8, 0);
        (it.summary.alone, it.summary.held_back) = (997, 3);
        assert_eq!(finding_of(&[it]), Finding::Alone);
    }

    #[test]
    fn what_was_retransmitted_in_vain_is_no_loss() {
        let mut it = watched(20, 4);
        it.summary.needless = 15;
        let advice = &advise(&[it.clone()], false)[0];
        assert_eq!(advice.finding, Finding::TooFewLosses);
        assert!((advice.repairable.unwrap().value - 4.0 / 5.0).abs() < 1e-9);
        assert!((advice.saved_ms.unwrap().value - 200.0 * 4.0 / 1000.0 / 4.0).abs() < 1e-9);
        let copies = advice.copies_saved_ms.unwrap().value;
        assert!((copies - 200.0 * 20.0 / 1000.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn streams_that_are_not_thin_or_wait_for_each_answer_have_nothing_to_gain() {
        let mut it = watched(50, 0);
        it.summary.held_back = 0;
        it.summary.sent = 1000;
        it.summary.not_thin = 500;
        it.summary.alone = 499;
        assert_eq!(finding_of(&[it.clone()]), Finding::NotThin);
        it.summary.alone = 501;
        assert_eq!(finding_of(&[it.clone()]), Finding::Alone);
        it.summary.segments = 7;
        assert_eq!(finding_of(&[it]), Finding::TooFewSegments);
    }

    #[test]
    fn what_kept_most_segments_from_a_bundle_is_told() {
        let mut it = watched(410, 0);
        it.summary.held_back = 0;
        (it.summary.sent, it.summary.alone) = (1464, 12);
        assert_eq!(finding_of(&[it.clone()]), Finding::Ineligible);
        it.summary.no_sack = 1452;
        assert_eq!(finding_of(&[it.clone()]), Finding::NoSack);
        (it.summary.no_sack, it.summary.no_room) = (0, 1452);
        assert_eq!(finding_of(&[it]), Finding::NoRoom);
    }

    #[test]
    fn peers_are_told_apart_when_asked_for() {
        let mut other = watched(3, 3);
        other.peer = "192.0.2.2".parse().unwrap();
        let all = [watched(20, 18), other];
        assert_eq!(advise(&all, false).len(), 1);
        assert_eq!(advise(&all, true).len(), 2);
    }
}
