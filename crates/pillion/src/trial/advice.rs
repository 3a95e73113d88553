//! Advice on connections that were observed without bundling. docs/evidence/advice-model.md has the
//! model.

use std::net::IpAddr;
use std::time::Duration;

use pillion_bpf::{Direction, Observation, RtoMinEffect, TcpOptions};
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

/// Fewer suppressed bundles and copies than one segment in this many count as none.
const NEGLIGIBLE_FRACTION: u64 = 100;

/// Minimum mean wait for Nagle's algorithm to advise against it, in milliseconds.
const MIN_NAGLE_MS: f64 = 1.0;

/// Maximum share of needless retransmissions (upper end of the interval) to advise a smaller
/// minimum RTO, above the share of losses: a lost ACK looks late, and is about as frequent.
const MAX_NEEDLESS_SHARE: f64 = 0.01;

/// Minimum share of the waits for the retransmission timer that a smaller minimum RTO must save.
const MIN_RTO_SAVED_SHARE: f64 = 0.25;

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
    /// Share of losses that bundles and copies would have repaired.
    pub repairable: Option<Estimate>,
    /// Waiting time saved per segment, average in milliseconds.
    pub time_saved_ms: Option<Estimate>,
    /// Upper bound of the same for a copy of each segment instead of bundles.
    pub copies_time_saved_ms: Option<Estimate>,
    /// Time that messages waited for Nagle's algorithm, average in milliseconds.
    pub nagle_ms: Option<Estimate>,
    /// True if [`Advice::nagle_ms`] suggests to switch Nagle's algorithm off.
    pub nodelay: bool,
    /// Smaller minimum RTO that would help; `None` if none is known to.
    pub rto_min: Option<RtoMinAdvice>,
    /// Bytes added by bundles and copies, as a share of the payload.
    pub added: Option<Estimate>,
    /// The advice itself.
    #[serde(rename = "finding")]
    pub kind: AdviceKind,
}

impl Advice {
    /// Returns the TCP options that would help.
    pub fn tcp_options(&self) -> TcpOptions {
        TcpOptions {
            nodelay: self.nodelay,
            rto_min: self.rto_min.map(|it| Duration::from_millis(it.min_ms)),
            ..TcpOptions::default()
        }
    }
}

/// Smaller minimum RTO, and the effect that it would have had.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RtoMinAdvice {
    /// The minimum, in milliseconds.
    pub min_ms: u64,
    /// Waits for the retransmission timer per segment, average in milliseconds.
    pub timer_ms: Estimate,
    /// Part of `timer_ms` that this minimum would have saved.
    pub saved_ms: Estimate,
    /// Share of segments that this minimum would have retransmitted needlessly.
    pub needless: Estimate,
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
/// Waits in the socket while losses had reduced the window are saved in proportion to the losses.
const TIME_SAVED_MS: Formula = |all| {
    let unsent_ms = mean_ms(all.reduced_byte_us, all)?;
    let repaired = REPAIRABLE(all).unwrap_or(0.0).min(1.0);
    Some(mean_ms(all.time_saved_byte_us, all)? + unsent_ms * repaired)
};
const COPIES_TIME_SAVED_MS: Formula = |all| {
    let saved = all
        .copies_time_saved_byte_us
        .saturating_add(all.reduced_byte_us);
    Some(mean_ms(saved, all)? * needed_share(all))
};
const NAGLE_MS: Formula = |all| mean_ms(all.nagle_byte_us, all);
const RTO_MS: Formula = |all| timer_ms(all.rto_ms, all);

/// Returns waits for the retransmission timer per segment. No message waits for a spurious
/// retransmission.
fn timer_ms(sum_ms: u64, all: &Summary) -> Option<f64> {
    Some(share(sum_ms, all.segments)? * needed_share(all))
}

const _: () = assert!(matches!(RtoMinEffect::MIN_MS, [20, 40, 80]));

/// Formulas for each of [`RtoMinEffect::MIN_MS`]: saved time, and share of needless
/// retransmissions.
const RTO_MINS: [[Formula; 2]; RtoMinEffect::MIN_MS.len()] = [
    [
        |all| timer_ms(all.rto_min_20_saved_ms, all),
        |all| share(all.rto_min_20_needless, all.segments),
    ],
    [
        |all| timer_ms(all.rto_min_40_saved_ms, all),
        |all| share(all.rto_min_40_needless, all.segments),
    ],
    [
        |all| timer_ms(all.rto_min_80_saved_ms, all),
        |all| share(all.rto_min_80_needless, all.segments),
    ],
];
const ADDED: Formula = |all| share(all.suppressed_bytes, all.new_bytes);

/// Returns the advice on these units, without the name of the group. With fewer than `min_units`
/// units it makes no claim about other connections. Equal units give equal intervals.
pub(crate) fn advice_for(units: &[&Summary], min_units: usize) -> Advice {
    let sample = Sample::new(units, units.len(), &mut seeded_rng(units.len() as u64));
    let summary = sample.sum.clone();
    let widened =
        |estimate: Option<Estimate>, whole| estimate.map(|estimate| widen(estimate, whole));
    let repairable = widened(sample.estimate(REPAIRABLE), losses(&summary));
    let nagle_ms = sample.estimate(NAGLE_MS);
    Advice {
        process: None,
        service: Service::Local(0),
        guessed: false,
        peer: None,
        loss: widened(sample.estimate(LOSS), summary.segments),
        repairable,
        time_saved_ms: sample.estimate(TIME_SAVED_MS),
        copies_time_saved_ms: sample.estimate(COPIES_TIME_SAVED_MS),
        nagle_ms,
        nodelay: summary.segments >= MIN_SEGMENTS
            && nagle_ms.is_some_and(|it| it.value >= MIN_NAGLE_MS),
        rto_min: rto_min(&sample).filter(|_| units.len() >= min_units),
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

/// Returns the smallest minimum RTO that saves enough, and is rarely needless.
fn rto_min(sample: &Sample) -> Option<RtoMinAdvice> {
    let all = &sample.sum;
    let needed = all.rto_expirations as f64 * needed_share(all);
    if all.segments < MIN_SEGMENTS || needed < MIN_LOSSES as f64 {
        return None;
    }
    let timer_ms = sample.estimate(RTO_MS)?;
    let lost = LOSS(all)?;
    let candidates = RtoMinEffect::MIN_MS.into_iter().zip(RTO_MINS);
    let advice = candidates.filter_map(|(min_ms, [saved, needless])| {
        Some(RtoMinAdvice {
            min_ms,
            timer_ms,
            saved_ms: sample.estimate(saved)?,
            needless: widen(sample.estimate(needless)?, all.segments),
        })
    });
    let is_safe = |it: &RtoMinAdvice| {
        let interval = it.needless.interval;
        interval.is_some_and(|(_, high)| high < MAX_NEEDLESS_SHARE + lost)
    };
    let saves_enough =
        |it: &RtoMinAdvice| it.saved_ms.value >= MIN_RTO_SAVED_SHARE * timer_ms.value;
    advice.filter(saves_enough).find(is_safe)
}

fn kind(all: &Summary, repairable: Option<Estimate>) -> AdviceKind {
    if all.segments < MIN_SEGMENTS {
        return AdviceKind::TooFewSegments;
    }
    let suppressed = all
        .suppressed_segments
        .saturating_add(all.suppressed_copies);
    let interval = repairable.and_then(|estimate| estimate.interval);
    match interval.filter(|_| losses(all) >= MIN_LOSSES) {
        Some((low, _)) if low >= MIN_REPAIRABLE_SHARE => AdviceKind::Bundle,
        _ if suppressed * NEGLIGIBLE_FRACTION <= all.sent => obstacle(all),
        Some((_, high)) if high < MIN_REPAIRABLE_SHARE => AdviceKind::LittleToRepair,
        _ => AdviceKind::TooFewLosses,
    }
}

/// Returns the most frequent obstacle to bundling, for groups with next to no suppressed bundles and
/// copies.
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
    fn waits_for_reduced_window_are_saved_as_often_as_losses() {
        let mut connection = observed(20, 15);
        connection.summary.reduced_byte_us = 100_000 * 40_000;
        let advice = &advise(&[connection], false)[0];
        let saved = advice.time_saved_ms.unwrap().value;
        assert!((saved - (200.0 * 15.0 / 1000.0 + 40.0 * 15.0 / 20.0)).abs() < 1e-9);
        let copies = advice.copies_time_saved_ms.unwrap().value;
        assert!((copies - (200.0 * 20.0 / 1000.0 + 40.0)).abs() < 1e-9);
    }

    #[test]
    fn repaired_isolated_segments_advise_bundling() {
        let mut connection = observed(20, 18);
        (
            connection.summary.nothing_outstanding,
            connection.summary.suppressed_segments,
            connection.summary.suppressed_copies,
        ) = (1000, 0, 1000);
        assert_eq!(kind_of(&vec![connection.clone(); 6]), AdviceKind::Bundle);
        connection.summary.repairable_segments = 2;
        assert_eq!(kind_of(&vec![connection; 6]), AdviceKind::LittleToRepair);
    }

    /// A request-response connection with RTT 2 ms and 1 % loss.
    fn request_response(needless: [u64; 3]) -> ObservedConnection {
        let mut connection = observed(10, 0);
        connection.summary = Summary {
            nothing_outstanding: 1000,
            suppressed_segments: 0,
            rto_expirations: 10,
            rto_ms: 2020,
            rto_min_20_saved_ms: 1800,
            rto_min_40_saved_ms: 1600,
            rto_min_80_saved_ms: 1200,
            rto_min_20_needless: needless[0],
            rto_min_40_needless: needless[1],
            rto_min_80_needless: needless[2],
            ..connection.summary
        };
        connection
    }

    #[test]
    fn smallest_rto_min_below_one_percent_needless_is_advised() {
        let advised = |needless| advise(&vec![request_response(needless); 5], false).remove(0);
        let advice = advised([0; 3]);
        assert_eq!(advice.kind, AdviceKind::NothingOutstanding);
        let rto_min = advice.rto_min.unwrap();
        assert_eq!(rto_min.min_ms, 20);
        assert!((rto_min.timer_ms.value - 2.02).abs() < 1e-9);
        assert!((rto_min.saved_ms.value - 1.8).abs() < 1e-9);
        assert!(rto_min.needless.interval.unwrap().1 < 0.001);
        // 1 % of the ACKs are probably lost, like the data. The upper end of the interval counts:
        // 1.8 % of 5,000 may be more than 2 %.
        let min_ms = |needless| advised(needless).rto_min.map(|it| it.min_ms);
        assert_eq!(min_ms([16, 16, 0]), Some(20));
        assert_eq!(min_ms([18, 16, 0]), Some(40));
        assert_eq!(min_ms([21, 18, 0]), Some(80));
        assert_eq!(min_ms([21, 21, 21]), None);
    }

    #[test]
    fn rto_min_without_enough_evidence_is_not_advised() {
        let rto_min = |change: fn(&mut Summary), count| {
            let mut connection = request_response([0; 3]);
            change(&mut connection.summary);
            advise(&vec![connection; count], false)[0].rto_min
        };
        assert!(rto_min(|_| {}, 5).is_some());
        assert!(rto_min(|_| {}, 4).is_none());
        assert!(rto_min(|all| all.rto_expirations = 1, 5).is_none());
        // The receiver had most of the retransmitted segments already.
        assert!(rto_min(|all| all.spurious = 9, 5).is_none());
        // The waits are those for a long RTT.
        assert!(rto_min(|all| all.rto_ms = 20_000, 5).is_none());
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
