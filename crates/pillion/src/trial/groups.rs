use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use crate::trial::advice::advice_for;
use crate::trial::estimate::MIN_UNITS;
use crate::trial::{Advice, ObservedConnection, Service, Summary};

/// Units stored per group. More units would not improve its intervals noticeably.
const MAX_UNITS_PER_GROUP: usize = 400;

/// Units stored in all groups together, at about 1 KiB each.
const MAX_UNITS: usize = 20_000;

/// Process, service, and with `--by-peer` the remote address.
type Key = (Option<String>, Service, Option<IpAddr>);

/// Connections grouped by process and service, and optionally by peer. Memory is bounded: in a
/// large group each unit is the sum of several connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionGroups {
    by_peer: bool,
    groups: BTreeMap<Key, Group>,
    units: usize,
    left_out: u64,
}

#[derive(Debug, Clone, Default)]
struct Group {
    units: Vec<Summary>,
    /// Unit that the next connection is added to, once the group is full.
    next: usize,
    /// True if the direction of any connection is known.
    is_known: bool,
}

impl ConnectionGroups {
    /// Creates an empty collection.
    #[must_use]
    pub fn new(by_peer: bool) -> Self {
        Self {
            by_peer,
            ..Self::default()
        }
    }

    /// Adds a connection; ignores it if it sent no data.
    fn add(&mut self, connection: ObservedConnection) {
        if connection.summary.sent == 0 {
            return;
        }
        let is_full = self.units >= MAX_UNITS;
        let group = match self.groups.entry(key(&connection, self.by_peer)) {
            Entry::Vacant(_) if is_full => {
                self.left_out += connection.summary.connections;
                return;
            }
            entry => entry.or_default(),
        };
        group.is_known |= !connection.guessed;
        if is_full || group.units.len() >= MAX_UNITS_PER_GROUP {
            let index = group.next % group.units.len();
            group.units[index] += &connection.summary;
            group.next = index + 1;
        } else {
            group.units.push(connection.summary);
            self.units += 1;
        }
    }

    /// Returns the number of connections without a group, because [`MAX_UNITS`] was reached.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the advice on each group, the longest total lateness first.
    #[must_use]
    pub fn advise(&self) -> Vec<Advice> {
        let groups = self.groups.iter();
        // Losses of one connection cluster, so a few connections do not generalise to others.
        let min_units = if self.by_peer { 1 } else { MIN_UNITS };
        let mut all: Vec<_> = groups
            .map(|((process, service, peer), group)| Advice {
                process: process.clone(),
                service: *service,
                guessed: !group.is_known,
                peer: *peer,
                ..advice_for(&group.units.iter().collect::<Vec<_>>(), min_units)
            })
            .collect();
        all.sort_by_key(|advice| std::cmp::Reverse(advice.summary.late_us));
        all
    }
}

impl Extend<ObservedConnection> for ConnectionGroups {
    fn extend<T: IntoIterator<Item = ObservedConnection>>(&mut self, all: T) {
        all.into_iter().for_each(|connection| self.add(connection));
    }
}

fn key(connection: &ObservedConnection, by_peer: bool) -> Key {
    (
        connection.process.clone(),
        connection.service,
        by_peer.then_some(connection.peer),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a connection whose losses and repairs depend on its number.
    fn connection(number: u32) -> ObservedConnection {
        let lost = u64::from(number % 7) + 1;
        ObservedConnection {
            process: Some("game".to_owned()),
            service: Service::Local(7777),
            guessed: false,
            peer: IpAddr::from(number.to_be_bytes()),
            summary: Summary {
                connections: 1,
                segments: 100,
                sent: 100,
                suppressed_segments: 90,
                lost,
                repairable_segments: if number.is_multiple_of(3) {
                    lost
                } else {
                    lost / 2
                },
                ..Summary::default()
            },
        }
    }

    fn groups(by_peer: bool, numbers: std::ops::Range<u32>) -> ConnectionGroups {
        let mut groups = ConnectionGroups::new(by_peer);
        groups.extend(numbers.map(connection));
        groups
    }

    #[test]
    fn pooled_units_keep_interval_width() {
        const MANY: u32 = 1_200;
        let few_units = groups(false, 0..MANY);
        assert_eq!(few_units.units, MAX_UNITS_PER_GROUP);
        let few = few_units.advise().remove(0);
        let each: Vec<_> = (0..MANY).map(|number| connection(number).summary).collect();
        let each = advice_for(&each.iter().collect::<Vec<_>>(), MIN_UNITS);
        assert_eq!(few.summary, each.summary);
        let width = |advice: &Advice| {
            let (low, high) = advice.repairable.unwrap().interval.unwrap();
            high - low
        };
        let ratio = width(&few) / width(&each);
        assert!((0.75..1.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn connections_beyond_capacity_are_counted() {
        let all = MAX_UNITS as u32;
        let mut groups = groups(true, 0..all + 5);
        assert_eq!((groups.units, groups.left_out()), (MAX_UNITS, 5));
        groups.add(connection(3));
        assert_eq!((groups.units, groups.left_out()), (MAX_UNITS, 5));
        let connections = groups.groups.values().flat_map(|group| &group.units);
        let connections: u64 = connections.map(|unit| unit.connections).sum();
        assert_eq!(connections, u64::from(all) + 1);
    }

    #[test]
    fn one_known_direction_ends_guess_of_whole_group() {
        let mut groups = ConnectionGroups::new(false);
        let guessed = ObservedConnection {
            guessed: true,
            ..connection(1)
        };
        groups.add(guessed);
        assert!(groups.advise()[0].guessed);
        groups.add(connection(2));
        assert!(!groups.advise()[0].guessed);
    }

    #[test]
    fn connections_without_data_are_ignored() {
        let mut silent = connection(1);
        silent.summary.sent = 0;
        let mut groups = ConnectionGroups::new(false);
        groups.add(silent);
        assert!(groups.advise().is_empty());
    }
}
