//! The rules in force, and warnings about rules that cover nothing.

use pillion_bpf::{
    AttachTargets, Attachment, Error, FollowedRules, Policy, cgroup2_mount, is_full_hierarchy,
};

/// The rules in force, and the warnings about them.
pub struct Rules {
    followed: FollowedRules,
    /// Warnings at the last check.
    warnings: Vec<String>,
    /// Why cgroups cannot be followed, if so.
    failure: Option<String>,
}

impl Rules {
    /// Resolves the cgroups and containers of a policy.
    pub fn new(policy: Policy) -> Result<Self, Error> {
        Ok(Self {
            followed: FollowedRules::new(policy)?,
            warnings: Vec::new(),
            failure: None,
        })
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

    /// Applies the rules again if their cgroups changed, and retries until that succeeds; returns the
    /// failure.
    pub fn update(&mut self, attachment: &Attachment, targets: &AttachTargets) -> Option<&str> {
        let followed = self.followed.follow(attachment, targets);
        let failure = followed
            .err()
            .map(|error| format!("cgroups changed, but the rules could not follow: {error}"));
        if let Some(why) = &failure
            && self.failure != failure
        {
            log::warn!("{why}; retrying");
        }
        self.failure = failure;
        self.failure.as_deref()
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
