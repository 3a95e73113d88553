use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Bottlenecks, Group, Host, Kernel, Measure, Name, Path, Receiver, Sysctls, sysctls};
use crate::settings::numbers;
use pillion_cli::settings::text;
use pillion_cli::settings::times::Length;

/// One run of an experiment, in the words of its file: nothing is left to choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// In a few words, what the experiment is about.
    #[serde(deserialize_with = "text::some_line")]
    pub title: Option<String>,
    /// How long messages fall due, from the moment when all connections are made.
    pub duration: Length,
    /// Seed of losses, times, sizes and content; in the virtual engine of the kernel as well.
    #[serde(default = "one")]
    pub seed: u32,
    /// Memory of the lab kernel that makes the run, in MiB; `None` leaves it to who makes it.
    #[serde(deserialize_with = "numbers::some_memory")]
    pub memory: Option<u32>,
    /// The lab kernel that makes the run.
    pub kernel: Kernel,
    /// The router.
    pub bottleneck: Bottlenecks,
    /// The emulator.
    pub path: Path,
    /// Kernel parameters of every host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
    /// The receiver and its application.
    pub receiver: Receiver,
    /// What is written down.
    pub measure: Measure,
    /// Sending hosts that groups share, or that differ from others.
    pub host: BTreeMap<Name, Host>,
    /// What is sent.
    pub group: BTreeMap<Name, Group>,
}

fn one() -> u32 {
    1
}

impl Run {
    /// Takes out the hosts that no group's streams come from, and gives their names.
    pub(super) fn take_idle_hosts(&mut self) -> BTreeSet<String> {
        let groups = self.group.iter();
        let used = groups.map(|(name, group)| group.host.as_deref().unwrap_or(name));
        let used: BTreeSet<&str> = used.collect();
        let hosts = std::mem::take(&mut self.host).into_iter();
        let (kept, idle): (BTreeMap<_, _>, BTreeMap<_, _>) =
            hosts.partition(|(name, _)| used.contains(&**name));
        self.host = kept;
        idle.into_keys().map(|name| name.to_string()).collect()
    }

    /// The run as a file of its own, which says every default as well: it stays this run when
    /// pillion's defaults change.
    #[must_use]
    pub fn to_text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}
