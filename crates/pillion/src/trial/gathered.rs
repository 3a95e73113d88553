use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use crate::trial::advice::of;
use crate::trial::estimate::FEWEST;
use crate::trial::{Advice, Service, Summary, Watched};

/// Sums of connections kept apart in a group, over which its intervals are: more would make them no
/// better by an amount that could be seen.
const UNITS_OF_GROUP: usize = 400;

/// Sums kept apart in all groups, of about a kilobyte each.
const UNITS: usize = 20_000;

/// Process, service, and the peer where peers are told apart.
type Key = (Option<String>, Service, Option<IpAddr>);

/// Connections by process and service, and by peer if asked for. However many there were, they take
/// no more memory: in a group of many, each sum is of several.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    by_peer: bool,
    groups: BTreeMap<Key, Group>,
    units: usize,
    left_out: u64,
}

#[derive(Debug, Clone, Default)]
struct Group {
    units: Vec<Summary>,
    /// The unit that the next connection is added to, once there are as many as can be.
    next: usize,
    /// Of a connection it was known which end has the service.
    known: bool,
}

impl Gathered {
    /// None yet.
    #[must_use]
    pub fn new(by_peer: bool) -> Self {
        Self {
            by_peer,
            ..Self::default()
        }
    }

    /// Adds a connection. One that sent nothing is of no account.
    fn add(&mut self, it: Watched) {
        if it.summary.sent == 0 {
            return;
        }
        let is_full = self.units >= UNITS;
        let group = match self.groups.entry(key(&it, self.by_peer)) {
            Entry::Vacant(_) if is_full => {
                self.left_out += it.summary.connections;
                return;
            }
            entry => entry.or_default(),
        };
        group.known |= !it.guessed;
        if is_full || group.units.len() >= UNITS_OF_GROUP {
            let place = group.next % group.units.len();
            group.units[place] += &it.summary;
            group.next = place + 1;
        } else {
            group.units.push(it.summary);
            self.units += 1;
        }
    }

    /// Connections that are in no group, for there were too many groups.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What is to be said of them, by process and service, those that waited longest first; and by
    /// peer as well if asked for.
    #[must_use]
    pub fn advise(&self) -> Vec<Advice> {
        let groups = self.groups.iter();
        // Losses of one connection come together: that few agree is no certainty about others.
        let fewest = if self.by_peer { 1 } else { FEWEST };
        let mut all: Vec<_> = groups
            .map(|((process, service, peer), group)| Advice {
                process: process.clone(),
                service: *service,
                guessed: !group.known,
                peer: *peer,
                ..of(&group.units.iter().collect::<Vec<_>>(), fewest)
            })
            .collect();
        all.sort_by_key(|advice| std::cmp::Reverse(advice.summary.late_us));
        all
    }
}

impl Extend<Watched> for Gathered {
    fn extend<T: IntoIterator<Item = Watched>>(&mut self, all: T) {
        all.into_iter().for_each(|it| self.add(it));
    }
}

fn key(it: &Watched, by_peer: bool) -> Key {
    (it.process.clone(), it.service, by_peer.then_some(it.peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of this number, which lost and would have had repaired what it says.
    fn ended(number: u32) -> Watched {
        let lost = u64::from(number % 7) + 1;
        Watched {
            process: Some("game".to_owned()),
            service: Service::Local(7777),
            guessed: false,
            peer: IpAddr::from(number.to_be_bytes()),
            summary: Summary {
                connections: 1,
                segments: 100,
                sent: 100,
                held_back: 90,
                lost,
                repairable: if number.is_multiple_of(3) {
                    lost
                } else {
                    lost / 2
                },
                ..Summary::default()
            },
        }
    }

    fn gathered(by_peer: bool, numbers: std::ops::Range<u32>) -> Gathered {
        let mut gathered = Gathered::new(by_peer);
        gathered.extend(numbers.map(ended));
        gathered
    }

    #[test]
    fn of_many_connections_the_interval_is_as_wide_as_of_each_alone() {
        const MANY: u32 = 1_200;
        let few_units = gathered(false, 0..MANY);
        assert_eq!(few_units.units, UNITS_OF_GROUP);
        let few = few_units.advise().remove(0);
        let each: Vec<_> = (0..MANY).map(|number| ended(number).summary).collect();
        let each = of(&each.iter().collect::<Vec<_>>(), FEWEST);
        assert_eq!(few.summary, each.summary);
        let width = |advice: &Advice| {
            let (low, high) = advice.repairable.unwrap().interval.unwrap();
            high - low
        };
        let ratio = width(&few) / width(&each);
        assert!((0.75..1.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let all = UNITS as u32;
        let mut gathered = gathered(true, 0..all + 5);
        assert_eq!((gathered.units, gathered.left_out()), (UNITS, 5));
        gathered.add(ended(3));
        assert_eq!((gathered.units, gathered.left_out()), (UNITS, 5));
        let connections = gathered.groups.values().flat_map(|group| &group.units);
        let connections: u64 = connections.map(|unit| unit.connections).sum();
        assert_eq!(connections, u64::from(all) + 1);
    }

    #[test]
    fn one_connection_of_which_the_end_with_the_service_is_known_tells_it_of_all() {
        let mut gathered = Gathered::new(false);
        let guessed = Watched {
            guessed: true,
            ..ended(1)
        };
        gathered.add(guessed);
        assert!(gathered.advise()[0].guessed);
        gathered.add(ended(2));
        assert!(!gathered.advise()[0].guessed);
    }

    #[test]
    fn who_sent_nothing_is_of_no_account() {
        let mut silent = ended(1);
        silent.summary.sent = 0;
        let mut gathered = Gathered::new(false);
        gathered.add(silent);
        assert!(gathered.advise().is_empty());
    }
}
