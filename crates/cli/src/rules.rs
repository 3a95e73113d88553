//! The rules in force, while cgroups and containers that they name come and go.

use std::path::Path;

use pillion_bundler::{
    Attachment, CgroupName, Cgroups, Container, Containers, Error, Policy, Scope, Selection,
    cgroup1_mount, cgroup2_mount, is_whole,
};

use crate::print::say;

/// The rules, and the cgroups that were there before they were put into force: those that come and
/// go in between are seen by the next look.
pub struct Rules {
    policy: Policy,
    cgroups: Vec<Option<Cgroups>>,
    /// What covered nothing at the last look.
    idle: Vec<String>,
    /// Why cgroups are followed no longer, if that is so.
    failing: Option<String>,
}

impl Rules {
    /// Those that a policy has, as it finds cgroups and its containers.
    pub fn of(policy: Policy) -> Self {
        let cgroups = policy.cgroups();
        // What is served is followed elsewhere, and kept from ending by whoever has it.
        let scope = Scope::default();
        Self {
            policy: Policy { scope, ..policy },
            cgroups,
            idle: Vec::new(),
            failing: None,
        }
    }

    /// Puts the rules into force.
    pub fn put(&self, attachment: &Attachment) -> Result<(), Error> {
        attachment.replace_rules(&self.policy)
    }

    /// Other rules are in force now.
    pub fn replace(&mut self, rules: Self) {
        let idle = std::mem::take(&mut self.idle);
        *self = Self { idle, ..rules };
    }

    /// Puts the rules into force again if cgroups have come or gone, time and again until that
    /// succeeds; gives what fails, in words.
    pub fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) -> Option<&str> {
        if self.policy.running != selection.containers() {
            self.policy.running = selection.containers().to_vec();
        }
        let now = self.policy.cgroups();
        if now == self.cgroups {
            self.failing = None;
            return None;
        }
        let put = || {
            self.put(attachment)?;
            attachment.review()
        };
        self.failing = match put() {
            Ok(_) => {
                self.cgroups = now;
                None
            }
            Err(error) => {
                let why = format!("cgroups have changed, and the rules do not follow: {error}");
                if self.failing.as_ref() != Some(&why) {
                    say(&format!("pillion: {why}; trying again"));
                }
                Some(why)
            }
        };
        self.failing.as_deref()
    }

    /// Says what covers nothing, each once until that is so no longer, by whatever comes or goes;
    /// gives all of it.
    pub fn tell_of_idle(&mut self, selection: &Selection) -> &[String] {
        let names = selection.unmatched();
        let names = names.map(|name| format!("no {name} is there"));
        let idle = self.idle(selection.containers_in_version_1());
        let idle = idle.into_iter().chain(self.left_out());
        let idle = idle.chain(names).chain(selection.unseen());
        let idle: Vec<_> = idle.collect();
        for new in idle.iter().filter(|it| !self.idle.contains(it)) {
            say(&format!("pillion: covers nothing: {new}"));
        }
        for old in self.idle.iter().filter(|it| !idle.contains(it)) {
            say(&format!("pillion: no longer: covers nothing: {old}"));
        }
        self.idle = idle;
        &self.idle
    }

    /// The rules that name more cgroups than they are given, in words.
    fn left_out(&self) -> impl Iterator<Item = String> {
        let most = Policy::MAX_CGROUPS;
        let rules = (1..).zip(&self.cgroups);
        rules.filter_map(move |(number, cgroups)| {
            let named = cgroups.as_ref()?;
            (named.followed.len() < named.named).then(|| {
                format!(
                    "rule {number}: some of its cgroups, for all rules together may name {most}; \
                     name one above them"
                )
            })
        })
    }

    /// The rules that no connection can match now, in words, and those of these containers that rules
    /// choose: they have cgroups of version 1 alone.
    pub fn idle(&self, in_version_1: &[Container]) -> Vec<String> {
        let mut idle = Vec::new();
        let rules = (1..).zip(&self.policy.rules).zip(&self.cgroups);
        for ((number, rule), cgroups) in rules {
            let before = idle.len();
            let untold = in_version_1.iter().filter(|it| rule.containers.has(it));
            idle.extend(untold.map(|it| {
                format!(
                    "rule {number}: container {it} has cgroups of version 1 alone, by which its \
                     sockets cannot be told: have its runtime use version 2, or name its network \
                     namespace"
                )
            }));
            let is_idle = cgroups.as_ref().is_some_and(|it| it.named == 0);
            if is_idle && idle.len() == before {
                idle.push(match rule.containers.is_empty() {
                    true => {
                        let names = rule.cgroups.iter().map(CgroupName::to_string);
                        let names = names.collect::<Vec<_>>().join(" or ");
                        format!("rule {number}: no cgroup is called {names}")
                    }
                    false => format!("rule {number}: no container is {}", rule.containers),
                });
            }
        }
        idle
    }
}

/// The containers that run, for rules that are only looked at.
pub fn running() -> Containers {
    let mut containers = Containers::default();
    if let Ok(mount) = cgroup2_mount() {
        containers.look(&mount, cgroup1_mount().as_deref());
    }
    containers
}

/// What it means that only a part of the hierarchy can be seen, if that is so.
pub fn of_the_view(mount: &Path) -> Option<String> {
    let text = || {
        format!(
            "only sockets of this container are seen, for {} is a part of the host's cgroups: to \
             cover others as well, give it the host's cgroup namespace and /sys/fs/cgroup",
            mount.display()
        )
    };
    (!is_whole(mount)).then(text)
}
