use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::{Container, ContainerChoice, Error, Mode, Observing, Options, Rule, Scope, Selection};

/// Which connections are bundled, and how. The default has no rules, and leaves it to the
/// applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The rules; the first one that matches a connection decides.
    pub rules: Vec<Rule>,
    /// What becomes of a connection that no rule matches.
    pub otherwise: Mode,
    /// The containers that run now, among which rules find theirs.
    pub running: Vec<Container>,
    /// The network namespaces whose connections are taken in.
    pub scope: Scope,
    /// How many connections are bundled at a time: some 4.5 KiB each, charged to this process. A
    /// socket of which something is remembered alone (what its application asked for, or its rule
    /// forbids) takes an eighth of that. One user has half of all at most. What finds no place
    /// stays plain.
    pub max_connections: u32,
    /// What is observed of each connection, and which of them are bundled then; `None`: nothing is
    /// observed. 2 KiB more of the kernel's memory for each.
    pub observing: Option<Observing>,
    /// True if a governor limits the share of segments with redundancy, so that a queue that it fills
    /// drains. Costs 0.5 MiB of kernel memory.
    pub governing: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            otherwise: Mode::Allow(Options::default()),
            running: Vec::new(),
            scope: Scope::default(),
            max_connections: Self::MAX_CONNECTIONS,
            observing: None,
            governing: false,
        }
    }
}

impl Policy {
    /// Rows that the kernel's table has: as many as [`Rule::rows`] of all rules may be. One
    /// more is for the connections that none matches.
    pub const MAX_ROWS: usize = (size_of::<types::rules>() - offset_of!(types::rules, rules))
        / size_of::<types::rule>()
        - 1;

    /// Places, where nothing else is said: the default of [`Policy::max_connections`].
    pub const MAX_CONNECTIONS: u32 = 65_536;

    /// The containers that rules ask for, whose network namespaces are to be served as well.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerChoice> {
        let asked_for = self.rules.iter().map(|rule| &rule.containers);
        asked_for.filter(|it| !it.is_empty()).cloned().collect()
    }

    /// The same, for the connections of a selection's network namespaces and the containers that it
    /// has seen to run.
    #[must_use]
    pub fn at(self, selection: &Selection) -> Self {
        Self {
            running: selection.containers().to_vec(),
            scope: selection.scope(),
            ..self
        }
    }

    /// Cgroups that all rules together may name, each counted for each rule that names it.
    pub const MAX_CGROUPS: usize = 8192;

    /// The cgroups that each rule names now, among them the containers' that it finds; `None` where
    /// it may be any cgroup. Of more than there is room for each rule has its share, of those with the
    /// lowest ids.
    ///
    /// # Errors
    /// As [`CgroupName::ids`](crate::CgroupName::ids).
    pub fn cgroups(&self) -> Result<Vec<Option<Cgroups>>, Error> {
        let named = self.rules.iter().map(|it| it.cgroup_ids(&self.running));
        let named: Vec<Option<Vec<u64>>> = named.collect::<Result<_, _>>()?;
        let counts = named.iter().map(|it| it.as_ref().map_or(0, Vec::len));
        let shares = shares(&counts.collect::<Vec<_>>(), Self::MAX_CGROUPS);
        let named = named.into_iter().zip(shares).map(|(ids, share)| {
            ids.map(|mut ids| {
                ids.sort_unstable();
                let named = ids.len();
                ids.truncate(share);
                Cgroups {
                    named,
                    followed: ids,
                }
            })
        });
        Ok(named.collect())
    }

    fn table(&self) -> Result<Table, Error> {
        let mut rows = Vec::new();
        let mut cgroups = BTreeMap::new();
        for (number, (rule, named)) in (1..).zip(self.rules.iter().zip(self.cgroups()?)) {
            // Of more rules than there are bits the rows are refused below.
            let bit = 1u64.checked_shl(number - 1).unwrap_or(0);
            for id in named.iter().flat_map(|named| &named.followed) {
                *cgroups.entry(*id).or_insert(0) |= bit;
            }
            rows.extend(rule.expand(number, named.map_or(0, |_| bit)));
        }
        let needed = rows.len();
        if needed > Self::MAX_ROWS {
            return Err(Error::TooManyRules { needed });
        }
        let mut table = Box::<types::rules>::default();
        table.count = needed as u32 + 1;
        let modes = self.rules.iter().map(|rule| rule.mode);
        let refuses = |mode| matches!(mode, Mode::LeaveAlone | Mode::Companions);
        table.refuse_all = modes.chain([self.otherwise]).all(refuses).into();
        table.asks_cgroup = (!cgroups.is_empty()).into();
        let mut directions = self.rules.iter().map(|rule| rule.direction);
        table.asks_opening = directions.any(|direction| direction.is_some()).into();
        let others = Rule {
            mode: self.otherwise,
            ..Rule::default()
        };
        rows.extend(others.expand(0, 0));
        for (place, row) in table.rules.iter_mut().zip(rows) {
            *place = row;
        }
        Ok(Table {
            rules: table,
            cgroups,
        })
    }
}

/// The cgroups that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// How many it names.
    pub named: usize,
    /// The ids of those that it covers.
    pub followed: Vec<u64>,
}

/// A policy as the kernel has it.
struct Table {
    rules: Box<types::rules>,
    /// The bits of the rules that name a cgroup, by its id.
    cgroups: BTreeMap<u64, u64>,
}

/// The kernel's two tables of rules, of which one is in force.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) rules: MapHandle,
    /// Cgroups that the rules of either name.
    pub(crate) cgroups: MapHandle,
    pub(crate) in_force: MapHandle,
}

impl Tables {
    /// Writes the policy to the table that is not in force and puts that into force, all at once.
    pub(crate) fn store(&self, policy: &Policy) -> Result<(), Error> {
        let table = policy.table()?;
        let key = 0u32.to_ne_bytes();
        let current = self.in_force.lookup(&key, MapFlags::ANY).map_err(failed)?;
        let other = u32::from(current.is_none_or(|bytes| bytes == key));
        self.store_cgroups(other, &table.cgroups)?;
        let other = other.to_ne_bytes();
        self.rules
            .update(&other, bytes(&*table.rules), MapFlags::ANY)
            .map_err(failed)?;
        self.in_force
            .update(&key, &other, MapFlags::ANY)
            .map_err(failed)
    }

    /// Has a table name these cgroups, and no others.
    fn store_cgroups(&self, table: u32, cgroups: &BTreeMap<u64, u64>) -> Result<(), Error> {
        let key = |id| types::rule_cgroup {
            id,
            table,
            ..types::rule_cgroup::default()
        };
        let wanted: BTreeMap<_, _> = cgroups
            .iter()
            .map(|(id, bits)| (bytes(&key(*id)).to_vec(), bits.to_ne_bytes()))
            .collect();
        let place = bytes(&key(0))[size_of::<u64>()..].to_vec();
        let known: Vec<_> = self.cgroups.keys().collect();
        for old in known
            .iter()
            .filter(|it| it.ends_with(&place) && !wanted.contains_key(*it))
        {
            self.cgroups.delete(old).map_err(failed)?;
        }
        for (key, bits) in wanted {
            self.cgroups
                .update(&key, &bits, MapFlags::ANY)
                .map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(error: libbpf_rs::Error) -> Error {
    Error::system("store the rules", io::Error::other(error.to_string()))
}

/// The bytes of a type that C and Rust share.
pub(crate) fn bytes<T: Copy>(value: &T) -> &[u8] {
    let start = std::ptr::from_ref(value).cast();
    // SAFETY: plain integers; the generated types name their padding, so every byte is set.
    unsafe { std::slice::from_raw_parts(start, size_of_val(value)) }
}

/// Shares the room for cgroups, of which users may make more than there is room for. Returns how many
/// of its cgroups each rule gets, by how many each names: all of them where there is room;
/// else each gets an equal share, and what one leaves of it is shared by the others.
pub(crate) fn shares(named: &[usize], most: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..named.len()).collect();
    by_size.sort_by_key(|rule| named[*rule]);
    let mut given = vec![0; named.len()];
    let (mut left, mut rules) = (most, named.len());
    for rule in by_size {
        given[rule] = named[rule].min(left / rules);
        left -= given[rule];
        rules -= 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rules_than_the_kernels_table_holds_are_refused() {
        let policy = |rules| Policy {
            rules: vec![Rule::default(); rules],
            ..Policy::default()
        };
        let full = policy(Policy::MAX_ROWS).table().unwrap().rules;
        assert_eq!(full.count as usize, full.rules.len());
        assert!(policy(Policy::MAX_ROWS + 1).table().is_err());
    }

    #[test]
    fn who_names_many_takes_nothing_from_who_names_few() {
        assert!(shares(&[], 10).is_empty());
        assert_eq!(shares(&[3, 0, 7], 10), [3, 0, 7]);
        assert_eq!(shares(&[3, 0, 8], 10), [3, 0, 7]);
        assert_eq!(shares(&[9000, 2, 9000, 9000], 10), [2, 2, 3, 3]);
    }
}
