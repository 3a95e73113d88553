//! Advice on connections that were observed without bundling. docs/evidence/advice-model.md has the
//! model.

use std::net::IpAddr;

use pillion_bpf::{Direction, Observation};
use pillion_stats::measure::share;
use serde::Serialize;

use crate::trial::estimate::{Sample, seeded_rng};
use crate::trial::{Estimate, Formula, Summary};

/// Minimum number of segments of a group for any advice.
const MIN_SEGMENTS: u64 = 100;

/// Minimum number of losses for advice on their repair.
const MIN_LOSSES: u64 = 10;

/// Minimum share of losses that bundles must repair to advise bundling.
const MIN_REPAIRABLE_SHARE: f64 = 0.25;

/// Fewer suppressed bundles than one segment in this many count as none.
const NEGLIGIBLE_FRACTION: u64 = 100;

/// A connection that was observed without bundling.
#[derive(Debug, Clone)]
pub struct ObservedConnection {
    /// Name of the process that owns the socket; `None` if not found.
    pub process: Option<String>,
    /// Port of the service, and the end that has it.
    pub service: Service,
    /// True if the end with the service is a guess.
    pub guessed: bool,
    /// Remote address.
    pub peer: IpAddr,
    /// Observation of the connection.
    pub summary: Summary,
}

/// Port of a service, and the end that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Service on this host.
    Local(u16),
    /// Service on the peer.
    Remote(u16),
}

impl Service {
    /// Returns the service of a connection: the port of the end that accepted it. If the direction
    /// is unknown, the lower port counts as the service.
    #[must_use]
    pub fn of(observation: &Observation) -> Self {
        let (local, remote) = (observation.local.port(), observation.peer.port());
        match observation.direction {
            Some(Direction::Accept) => Self::Local(local),
            Some(Direction::Connect) => Self::Remote(remote),
            None if local <= remote => Self::Local(local),
            None => Self::Remote(remote),
        }
    }
}

/// Advice on the connections of one process and service, or of one of its peers.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// Name of the process; `None` if not found.
    pub process: Option<String>,
    /// Port of the service, and the end that has it.
    pub service: Service,
    /// True if the direction of every connection is unknown.
    pub guessed: bool,
    /// Remote address with `--by-peer`; otherwise `None`.
    pub peer: Option<IpAddr>,
    /// Sum of the observations.
    #[serde(flatten)]
    pub summary: Summary,
    /// Share of segments that were lost, without spurious retransmissions.
    pub loss: Option<Estimate>,
    /// Share of losses that bundles would have repaired.
    pub repairable: Option<Estimate>,
    /// Waiting time saved per segment, average in milliseconds.
    pub time_saved_ms: Option<Estimate>,
    /// Upper bound of the same for a copy of each segment instead of bundles.
    pub copies_time_saved_ms: Option<Estimate>,
    /// Time that messages waited for Nagle's algorithm, average in milliseconds.
    pub nagle_ms: Option<Estimate>,
    /// Bytes added by bundles, as a share of the payload.
    pub added: Option<Estimate>,
    /// The advice itself.
    #[serde(rename = "finding")]
    pub kind: AdviceKind,
}

/// Kind of advice, in JSON with the key `finding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// Bundle: bundles would have repaired losses.
    Bundle,
    /// Too few segments for any advice.
    TooFewSegments,
    /// Too few losses to estimate how many bundles repair.
    TooFewLosses,
    /// Too few connections to generalise from their losses.
    TooFewConnections,
    /// Most segments were sent while the stream was not thin.
    NotThin,
    /// Each message was acknowledged before the next one was sent.
    NothingOutstanding,
    /// Messages leave no room in a segment for a previous one.
    NoRoom,
    /// Peers do not offer SACK, so pillion bundles only with `--without-sack`.
    NoSack,
    /// No segment was eligible for other reasons; `--stats` has the outcomes.
    Ineligible,
    /// Bundles would have repaired few of the losses.
    LittleToRepair,
}

/// Returns the number of losses: retransmissions without those that the receiver reported as
/// duplicates.
fn losses(all: &Summary) -> u64 {
    all.lost.saturating_sub(all.spurious)
}

/// Returns the share of retransmissions that were necessary. The model treats all of them as
/// losses, so its savings are scaled by this share.
fn needed_share(all: &Summary) -> f64 {
    share(losses(all), all.lost).unwrap_or(0.0)
}

/// Returns the average of a sum over all bytes in milliseconds. For messages of one size it is the
/// average of a message.
fn mean_ms(byte_us: u64, all: &Summary) -> Option<f64> {
    share(byte_us, all.new_bytes).map(|us| us / 1e3)
}

const LOSS: Formula = |all| share(losses(all), all.segments);
const REPAIRABLE: Formula = |all| share(all.repairable_segments, losses(all));
const TIME_SAVED_MS: Formula = |all| mean_ms(all.time_saved_byte_us, all);
const COPIES_TIME_SAVED_MS: Formula =
    |all| Some(mean_ms(all.copies_time_saved_byte_us, all)? * needed_share(all));
const NAGLE_MS: Formula = |all| mean_ms(all.nagle_byte_us, all);
const ADDED: Formula = |all| share(all.suppressed_bytes, all.new_bytes);

/// Returns the advice on these units, without the name of the group. With fewer than `min_units`
/// units it makes no claim about other connections. Equal units give equal intervals.
pub(crate) fn advice_for(units: &[&Summary], min_units: usize) -> Advice {
    let sample = Sample::new(units, units.len(), &mut seeded_rng(units.len() as u64));
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
        time_saved_ms: sample.estimate(TIME_SAVED_MS),
        copies_time_saved_ms: sample.estimate(COPIES_TIME_SAVED_MS),
        nagle_ms: sample.estimate(NAGLE_MS),
        added: sample.estimate(ADDED),
        kind: match kind(&summary, repairable) {
            AdviceKind::Bundle | AdviceKind::LittleToRepair if units.len() < min_units => {
                AdviceKind::TooFewConnections
            }
            kind => kind,
        },
        summary,
    }
}

fn kind(all: &Summary, repairable: Option<Estimate>) -> AdviceKind {
    if all.segments < MIN_SEGMENTS {
        return AdviceKind::TooFewSegments;
    }
    let interval = repairable.and_then(|estimate| estimate.interval);
    match interval.filter(|_| losses(all) >= MIN_LOSSES) {
        Some((low, _)) if low >= MIN_REPAIRABLE_SHARE => AdviceKind::Bundle,
        _ if all.suppressed_segments * NEGLIGIBLE_FRACTION <= all.sent => obstacle(all),
        Some((_, high)) if high < MIN_REPAIRABLE_SHARE => AdviceKind::LittleToRepair,
        _ => AdviceKind::TooFewLosses,
    }
}

/// Returns the most frequent obstacle to bundling, for groups with next to no suppressed bundles.
fn obstacle(all: &Summary) -> AdviceKind {
    let known = [
        (all.nothing_outstanding, AdviceKind::NothingOutstanding),
        (all.not_thin, AdviceKind::NotThin),
        (all.no_room, AdviceKind::NoRoom),
        (all.no_sack, AdviceKind::NoSack),
    ];
    let explained: u64 = known.iter().map(|(count, _)| count).sum();
    let others = (all.sent.saturating_sub(explained), AdviceKind::Ineligible);
    let largest = known
        .into_iter()
        .chain([others])
        .max_by_key(|(count, _)| *count);
    largest.map_or(AdviceKind::Ineligible, |(_, kind)| kind)
}

/// Widens an interval to the one of independent events (E. B. Wilson, 1927). Otherwise a few
/// connections that agree by chance would have too narrow an interval.
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
    use crate::trial::ConnectionGroups;

    fn observed(lost: u64, repairable: u64) -> ObservedConnection {
        ObservedConnection {
            process: Some("game".to_owned()),
            service: Service::Local(7777),
            guessed: false,
            peer: "192.0.2.1".parse().unwrap(),
            summary: Summary {
                connections: 1,
                segments: 1000,
                sent: 1000,
                suppressed_segments: 900,
                lost,
                repairable_segments: repairable,
                new_bytes: 100_000,
                time_saved_byte_us: 100 * 200_000 * repairable,
                copies_time_saved_byte_us: 100 * 200_000 * lost,
                ..Summary::default()
            },
        }
    }

    fn advise(observed: &[ObservedConnection], by_peer: bool) -> Vec<Advice> {
        let mut groups = ConnectionGroups::new(by_peer);
        groups.extend(observed.iter().cloned());
        groups.advise()
    }

    fn kind_of(observed: &[ObservedConnection]) -> AdviceKind {
        advise(observed, false)[0].kind
    }

    #[test]
    fn many_repairable_losses_advise_bundling() {
        let advice = &advise(&vec![observed(20, 18); 6], false)[0];
        assert_eq!(advice.kind, AdviceKind::Bundle);
        assert_eq!((advice.summary.connections, advice.summary.lost), (6, 120));
        let (low, high) = advice.repairable.unwrap().interval.unwrap();
        assert!(
            low > 0.8 && low < 0.9 && high > 0.9 && high < 1.0,
            "{low} {high}"
        );
    }

    #[test]
    fn few_losses_are_inconclusive() {
        assert_eq!(kind_of(&[observed(9, 9)]), AdviceKind::TooFewLosses);
        // Enough losses, but the connections disagree.
        assert_eq!(kind_of(&[observed(12, 4)]), AdviceKind::TooFewLosses);
    }

    #[test]
    fn few_connections_are_inconclusive_except_by_peer() {
        for repairable in [0, 100] {
            let few = vec![observed(100, repairable); 4];
            assert_eq!(kind_of(&few), AdviceKind::TooFewConnections);
            // Advice on a single peer does not generalise to others.
            let of_peer = advise(&few, true)[0].kind;
            assert_ne!(of_peer, AdviceKind::TooFewConnections);
        }
    }

    #[test]
    fn unrepairable_losses_advise_against_bundling() {
        assert_eq!(
            kind_of(&vec![observed(50, 2); 6]),
            AdviceKind::LittleToRepair
        );
    }

    #[test]
    fn few_bundles_do_not_hide_main_obstacle() {
        let mut connection = observed(8, 0);
        (
            connection.summary.nothing_outstanding,
            connection.summary.suppressed_segments,
        ) = (997, 3);
        assert_eq!(kind_of(&[connection]), AdviceKind::NothingOutstanding);
    }

    #[test]
    fn spurious_retransmissions_are_not_losses() {
        let mut connection = observed(20, 4);
        connection.summary.spurious = 15;
        let advice = &advise(&[connection.clone()], false)[0];
        assert_eq!(advice.kind, AdviceKind::TooFewLosses);
        assert!((advice.repairable.unwrap().value - 4.0 / 5.0).abs() < 1e-9);
        // A retransmission that saves no time adds none to the sum.
        assert!((advice.time_saved_ms.unwrap().value - 200.0 * 4.0 / 1000.0).abs() < 1e-9);
        let copies = advice.copies_time_saved_ms.unwrap().value;
        assert!((copies - 200.0 * 20.0 / 1000.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn thick_and_request_response_streams_gain_nothing() {
        let mut connection = observed(50, 0);
        connection.summary.suppressed_segments = 0;
        connection.summary.sent = 1000;
        connection.summary.not_thin = 500;
        connection.summary.nothing_outstanding = 499;
        assert_eq!(kind_of(&[connection.clone()]), AdviceKind::NotThin);
        connection.summary.nothing_outstanding = 501;
        assert_eq!(
            kind_of(&[connection.clone()]),
            AdviceKind::NothingOutstanding
        );
        connection.summary.segments = 7;
        assert_eq!(kind_of(&[connection]), AdviceKind::TooFewSegments);
    }

    #[test]
    fn advice_names_most_frequent_obstacle() {
        let mut connection = observed(410, 0);
        connection.summary.suppressed_segments = 0;
        (
            connection.summary.sent,
            connection.summary.nothing_outstanding,
        ) = (1464, 12);
        assert_eq!(kind_of(&[connection.clone()]), AdviceKind::Ineligible);
        connection.summary.no_sack = 1452;
        assert_eq!(kind_of(&[connection.clone()]), AdviceKind::NoSack);
        (connection.summary.no_sack, connection.summary.no_room) = (0, 1452);
        assert_eq!(kind_of(&[connection]), AdviceKind::NoRoom);
    }

    #[test]
    fn by_peer_gives_one_advice_per_peer() {
        let mut other = observed(3, 3);
        other.peer = "192.0.2.2".parse().unwrap();
        let all = [observed(20, 18), other];
        assert_eq!(advise(&all, false).len(), 1);
        assert_eq!(advise(&all, true).len(), 2);
    }
}
