//! The rules in force, warnings about rules that cover nothing, and the comparison with connections
//! that rules hold back.

use std::time::Instant;

use pillion_bpf::{
    AttachTargets, Attachment, Device, Error, FollowedRules, Policy, cgroup2_mount,
    is_full_hierarchy,
};
use pillion_stats::names::escaped;

use crate::trial::Holdbacks;

/// The rules in force, and the warnings about them.
pub struct Rules {
    followed: FollowedRules,
    holdbacks: Holdbacks,
    /// Warnings at the last check.
    warnings: Vec<String>,
    /// Why cgroups cannot be followed, if so.
    failure: Option<String>,
}

impl Rules {
    /// Resolves the cgroups and containers of a policy.
    pub fn new(policy: Policy) -> Result<Self, Error> {
        Ok(Self {
            holdbacks: Holdbacks::new(&policy),
            followed: FollowedRules::new(policy)?,
            warnings: Vec::new(),
            failure: None,
        })
    }

    /// Continues earlier comparisons. Bundling stays withdrawn from rules that did not change; returns
    /// their numbers.
    pub fn continue_from(&mut self, old: &Holdbacks) -> Vec<u32> {
        let withdrawn = self.holdbacks.continue_from(old);
        withdrawn.iter().for_each(|it| self.followed.withdraw(*it));
        withdrawn
    }

    /// Returns the comparisons of rules with a holdback.
    pub fn holdbacks(&self) -> &Holdbacks {
        &self.holdbacks
    }

    /// Puts the rules into force.
    pub fn apply(&self, attachment: &Attachment) -> Result<(), Error> {
        self.followed.apply(attachment)
    }

    /// Replaces the rules after a reload, and keeps the warnings.
    pub fn replace(&mut self, rules: Self) {
        let warnings = std::mem::take(&mut self.warnings);
        *self = Self { warnings, ..rules };
    }

    /// Compares bundled connections with plain ones, and applies the rules again if their cgroups
    /// changed or bundling is withdrawn. Retries until that succeeds; returns the failure.
    pub fn update(&mut self, attachment: &mut Attachment, targets: &AttachTargets) -> Option<&str> {
        let compared = self.compare(attachment);
        let followed = self.followed.follow(attachment, targets);
        let followed = followed.map_err(|error| {
            format!("the rules could not follow cgroups or a withdrawal: {error}")
        });
        let failure = followed.and(compared).err();
        if let Some(why) = &failure
            && self.failure != failure
        {
            log::warn!("{why}; retrying");
        }
        self.failure = failure;
        self.failure.as_deref()
    }

    /// Compares the connections of rules with a holdback, if that is due.
    fn compare(&mut self, attachment: &mut Attachment) -> Result<(), String> {
        if !self.holdbacks.is_due(Instant::now()) {
            return Ok(());
        }
        let holdbacks = &mut self.holdbacks;
        let read = attachment.observe(|observation| holdbacks.add(&observation));
        read.map_err(|error| format!("the holdback cannot be compared: {error}"))?;
        for withdrawn in holdbacks.analyse() {
            log::warn!(
                "rule {}: bundling withdrawn, because bundled connections were reliably worse than \
                 plain ones ({}); change the rule or restart pillion to bundle again",
                withdrawn.rule,
                withdrawn.differences()
            );
            self.followed.withdraw(withdrawn.rule);
        }
        Ok(())
    }

    /// Returns a warning about each device that ignores a delay of copies.
    pub fn copy_delay_warnings(&self, attachment: &Attachment) -> Vec<String> {
        if !self.followed.delays_copies() {
            return Vec::new();
        }
        let devices = Device::without_fq(attachment.devices()).into_iter();
        let warnings = devices.map(|device| {
            format!(
                "{device} ignores the delay of copies, because it lacks the queueing discipline fq: tc \
                 qdisc replace dev {} root fq",
                escaped(&device.name)
            )
        });
        warnings.collect()
    }

    /// Logs each new warning once, and its end; returns all current ones.
    pub fn warn(&mut self, targets: &AttachTargets) -> &[String] {
        let unmatched = self.followed.unmatched_rules(targets.container_state());
        let unmatched = unmatched.into_iter().map(|it| covers_nothing(&it));
        let warnings = unmatched.chain(self.followed.truncated_rules());
        let warnings = warnings.chain(targets.unmatched()).chain(targets.unseen());
        let warnings: Vec<_> = warnings.collect();
        for new in warnings.iter().filter(|it| !self.warnings.contains(it)) {
            log::warn!("{new}");
        }
        for old in self.warnings.iter().filter(|it| !warnings.contains(it)) {
            log::info!("resolved: {old}");
        }
        self.warnings = warnings;
        &self.warnings
    }
}

/// Formats a rule that matches nothing, `rule 1: reason`, as `rule 1 covers nothing: reason`.
pub fn covers_nothing(unmatched: &str) -> String {
    match unmatched.split_once(": ") {
        Some((rule, why)) => format!("{rule} covers nothing: {why}"),
        None => format!("covers nothing: {unmatched}"),
    }
}

/// Returns a warning if only a part of the cgroup hierarchy is visible.
pub fn view_warning() -> Option<String> {
    let mount = cgroup2_mount()
        .ok()
        .filter(|mount| !is_full_hierarchy(mount))?;
    Some(format!(
        "only sockets of this container are visible, because {} is a part of the host's cgroups: \
         to cover others, give it the host's cgroup namespace and /sys/fs/cgroup",
        mount.display()
    ))
}
