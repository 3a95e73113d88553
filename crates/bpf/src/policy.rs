use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::{
    AttachTargets, Container, ContainerSelector, Error, Holdback, Mode, Observing, Options,
    RedundancyCaps, Rule, Scope,
};

/// Everything that the programs are loaded with: rules of the user, objects of the host that they
/// refer to, and options of loading. The default has no rules, and bundles on request of the
/// application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The rules; the first match decides.
    pub rules: Vec<Rule>,
    /// The mode of connections without a matching rule.
    pub default_mode: Mode,
    /// Runtime state: the running containers, which the rules select from.
    pub running: Vec<Container>,
    /// Runtime state: the network namespaces in which connections are covered. The policy keeps
    /// them open.
    pub scope: Scope,
    /// Load option: maximum number of bundled connections, about 4.5 KiB each, charged to this
    /// process. A socket with only a stored request takes an eighth of a slot. One user gets at
    /// most half of the slots. Connections without a slot are not bundled.
    pub max_connections: u32,
    /// Load option: observation of connections, and the share bundled meanwhile; `None`: no
    /// observation. It takes 2 KiB more of kernel memory per connection.
    pub observing: Option<Observing>,
    /// Load option: a governor limits the share of segments with redundancy, so that a queue that
    /// redundancy fills drains. Costs 0.5 MiB of kernel memory. `run`, `attach`, `advise` and
    /// `trial` set it.
    pub governing: bool,
    /// Caps on the redundancy of all connections together, with or without a governor.
    /// [`Attachment::replace_rules`](crate::Attachment::replace_rules) changes them, unless the programs
    /// were loaded with `None`: then their check is left out.
    pub redundancy_caps: Option<RedundancyCaps>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            default_mode: Mode::OnRequest(Options::default()),
            running: Vec::new(),
            scope: Scope::default(),
            max_connections: Self::MAX_CONNECTIONS,
            observing: None,
            governing: false,
            redundancy_caps: None,
        }
    }
}

impl Policy {
    /// Rows of the kernel's table for rules: the maximum sum of [`Rule::rows`]. One more row is for
    /// connections without a matching rule.
    pub const MAX_ROWS: usize = (size_of::<types::rules>() - offset_of!(types::rules, rules))
        / size_of::<types::rule>()
        - 1;

    /// The default of [`Policy::max_connections`].
    pub const MAX_CONNECTIONS: u32 = 65_536;

    /// Memory to load the programs, in MiB; the kernel's verifier takes most of it.
    pub const MIN_MEMORY_MIB: u64 = 18;

    /// Returns how many connections fit into this memory; `observed` ones are larger. `None` if it is
    /// below [`Policy::MIN_MEMORY_MIB`].
    #[must_use]
    pub fn connections_within(available_bytes: u64, observed: bool) -> Option<u32> {
        /// Memory of a process with loaded programs.
        const PROCESS_BYTES: u64 = 16 << 20;
        const CONNECTION_BYTES: u64 = 4608;
        const OBSERVATION_BYTES: u64 = 2048;
        let each = CONNECTION_BYTES + if observed { OBSERVATION_BYTES } else { 0 };
        let fitting = available_bytes.saturating_sub(PROCESS_BYTES) / each;
        let is_enough = available_bytes >> 20 >= Self::MIN_MEMORY_MIB;
        is_enough.then(|| u32::try_from(fitting).unwrap_or(u32::MAX))
    }

    /// Returns true if a rule has a holdback.
    #[must_use]
    pub fn has_holdback(&self) -> bool {
        self.rules.iter().any(|rule| !rule.holdback.is_none())
    }

    /// Withdraws bundling from a rule, by its number from 1.
    pub fn withdraw(&mut self, number: u32) {
        let rules = (1..).zip(&mut self.rules);
        for (_, rule) in rules.filter(|(it, _)| *it == number) {
            rule.holdback = Holdback::ALL;
        }
    }

    /// The container conditions of the rules; the network namespaces of these containers are in
    /// scope as well.
    #[must_use]
    pub fn container_selectors(&self) -> Vec<ContainerSelector> {
        let requested = self.rules.iter().map(|rule| &rule.containers);
        requested.filter(|it| !it.is_empty()).cloned().collect()
    }

    /// Copies the network namespaces and the running containers from the targets. The policy then
    /// keeps these namespaces open.
    #[must_use]
    pub fn with_targets(self, targets: &AttachTargets) -> Self {
        Self {
            running: targets.containers().to_vec(),
            scope: targets.scope(),
            ..self
        }
    }

    /// Cgroups that all rules together may name, each counted for each rule that names it.
    pub const MAX_CGROUPS: usize = 8192;

    /// The cgroups that each rule names now, including those of its containers; `None` if any
    /// cgroup matches. If there are too many, each rule gets a share: those with the lowest ids.
    ///
    /// # Errors
    ///
    /// As [`CgroupName::ids`](crate::CgroupName::ids).
    pub fn cgroups(&self) -> Result<Vec<Option<Cgroups>>, Error> {
        let named = self.rules.iter().map(|it| it.cgroup_ids(&self.running));
        let named: Vec<Option<Vec<u64>>> = named.collect::<Result<_, _>>()?;
        let counts = named.iter().map(|it| it.as_ref().map_or(0, Vec::len));
        let limits = share_cgroups(&counts.collect::<Vec<_>>(), Self::MAX_CGROUPS);
        let named = named.into_iter().zip(limits).map(|(ids, limit)| {
            ids.map(|mut ids| {
                ids.sort_unstable();
                let named = ids.len();
                ids.truncate(limit);
                Cgroups {
                    named,
                    covered: ids,
                }
            })
        });
        Ok(named.collect())
    }

    fn table(&self) -> Result<Table, Error> {
        let mut rows = Vec::new();
        let mut cgroups = BTreeMap::new();
        for (number, (rule, named)) in (1..).zip(self.rules.iter().zip(self.cgroups()?)) {
            // More rules than bits are rejected below, by their rows.
            let bit = 1u64.checked_shl(number - 1).unwrap_or(0);
            for id in named.iter().flat_map(|named| &named.covered) {
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
        let refuses_bundling = |mode| matches!(mode, Mode::Never | Mode::TcpOptions);
        table.refuse_all = modes
            .chain([self.default_mode])
            .all(refuses_bundling)
            .into();
        table.uses_cgroups = (!cgroups.is_empty()).into();
        let mut directions = self.rules.iter().map(|rule| rule.direction);
        table.uses_open_kind = directions.any(|direction| direction.is_some()).into();
        let others = Rule {
            mode: self.default_mode,
            ..Rule::default()
        };
        rows.extend(others.expand(0, 0));
        for (slot, row) in table.rules.iter_mut().zip(rows) {
            *slot = row;
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
    /// The ids of the covered ones.
    pub covered: Vec<u64>,
}

/// The kernel's form of a policy.
struct Table {
    rules: Box<types::rules>,
    /// The bits of the rules that name a cgroup, by its id.
    cgroups: BTreeMap<u64, u64>,
}

/// The kernel's two tables of rules, one of them active.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) rules: MapHandle,
    /// Cgroups that the rules of either table name.
    pub(crate) cgroups: MapHandle,
    pub(crate) active_table: MapHandle,
    pub(crate) caps: MapHandle,
}

impl Tables {
    /// Writes the caps, and the policy to the inactive table, and then activates it.
    pub(crate) fn store(&self, policy: &Policy) -> Result<(), Error> {
        let table = policy.table()?;
        let key = 0u32.to_ne_bytes();
        let current = self
            .active_table
            .lookup(&key, MapFlags::ANY)
            .map_err(failed)?;
        let other = u32::from(current.is_none_or(|bytes| bytes == key));
        self.store_cgroups(other, &table.cgroups)?;
        let caps = types::caps::from(policy.redundancy_caps.unwrap_or_default());
        self.caps
            .update(&0u32.to_ne_bytes(), bytes(&caps), MapFlags::ANY)
            .map_err(failed)?;
        let other = other.to_ne_bytes();
        self.rules
            .update(&other, bytes(&*table.rules), MapFlags::ANY)
            .map_err(failed)?;
        // Programs that see the new index also see its table.
        fence(Ordering::Release);
        self.active_table
            .update(&key, &other, MapFlags::ANY)
            .map_err(failed)
    }

    /// Replaces the cgroups of one of the two tables.
    fn store_cgroups(&self, table: u32, cgroups: &BTreeMap<u64, u64>) -> Result<(), Error> {
        let key = |id| types::rule_cgroup {
            id,
            table,
            ..types::rule_cgroup::default()
        };
        let new_entries: BTreeMap<_, _> = cgroups
            .iter()
            .map(|(id, bits)| (bytes(&key(*id)).to_vec(), bits.to_ne_bytes()))
            .collect();
        let table_suffix = bytes(&key(0))[size_of::<u64>()..].to_vec();
        let old_keys: Vec<_> = self.cgroups.keys().collect();
        for old in old_keys
            .iter()
            .filter(|it| it.ends_with(&table_suffix) && !new_entries.contains_key(*it))
        {
            self.cgroups.delete(old).map_err(failed)?;
        }
        for (key, bits) in new_entries {
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

/// Shares the limit of cgroups among the rules, because users may create more. Returns the number
/// of cgroups of each rule, by how many each names. Rules that need less than an equal share leave
/// the rest to the others.
pub(crate) fn share_cgroups(named: &[usize], max: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..named.len()).collect();
    by_size.sort_by_key(|rule| named[*rule]);
    let mut granted = vec![0; named.len()];
    let (mut left, mut rules) = (max, named.len());
    for rule in by_size {
        granted[rule] = named[rule].min(left / rules);
        left -= granted[rule];
        rules -= 1;
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_beyond_table_size_are_rejected() {
        let policy = |rules| Policy {
            rules: vec![Rule::default(); rules],
            ..Policy::default()
        };
        let full = policy(Policy::MAX_ROWS).table().unwrap().rules;
        assert_eq!(full.count as usize, full.rules.len());
        assert!(policy(Policy::MAX_ROWS + 1).table().is_err());
    }

    #[test]
    fn cgroup_shares_favor_rules_with_few_cgroups() {
        assert!(share_cgroups(&[], 10).is_empty());
        assert_eq!(share_cgroups(&[3, 0, 7], 10), [3, 0, 7]);
        assert_eq!(share_cgroups(&[3, 0, 8], 10), [3, 0, 7]);
        assert_eq!(share_cgroups(&[9000, 2, 9000, 9000], 10), [2, 2, 3, 3]);
    }
}
