//! What is said of the rules in force, while cgroups and containers that they name come and go.

use pillion_bpf::{Attachment, Error, FollowedRules, Policy, Selection, cgroup2_mount, is_whole};
use pillion_cli::print::say_line;

/// The rules in force, and what was said of them.
pub struct Rules {
    followed: FollowedRules,
    /// What covered nothing at the last look.
    idle: Vec<String>,
    /// Why cgroups are followed no longer, if that is so.
    failing: Option<String>,
}

impl Rules {
    /// Those that a policy has, as it finds cgroups and its containers.
    pub fn of(policy: Policy) -> Result<Self, Error> {
        Ok(Self {
            followed: FollowedRules::of(policy)?,
            idle: Vec::new(),
            failing: None,
        })
    }

    /// Puts the rules into force.
    pub fn put(&self, attachment: &Attachment) -> Result<(), Error> {
        self.followed.put(attachment)
    }

    /// Other rules are in force now.
    pub fn replace(&mut self, rules: Self) {
        let idle = std::mem::take(&mut self.idle);
        *self = Self { idle, ..rules };
    }

    /// Puts the rules into force again if cgroups have come or gone, time and again until that
    /// succeeds; gives what fails, in words.
    pub fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) -> Option<&str> {
        let followed = self.followed.follow(attachment, selection);
        let failing = followed
            .err()
            .map(|error| format!("cgroups have changed, and the rules do not follow: {error}"));
        if let Some(why) = &failing
            && self.failing != failing
        {
            say_line!("pillion: {why}; trying again");
        }
        self.failing = failing;
        self.failing.as_deref()
    }

    /// Says what covers nothing, each once until that is so no longer, by whatever comes or goes;
    /// gives all of it.
    pub fn tell_of_idle(&mut self, selection: &Selection) -> &[String] {
        let names = selection.unmatched();
        let names = names.map(|name| format!("no {name} is there"));
        let idle = self.followed.idle(selection.containers_in_version_1());
        let idle = idle.into_iter().chain(self.followed.left_out());
        let idle = idle.chain(names).chain(selection.unseen());
        let idle: Vec<_> = idle.collect();
        for new in idle.iter().filter(|it| !self.idle.contains(it)) {
            say_line!("pillion: covers nothing: {new}");
        }
        for old in self.idle.iter().filter(|it| !idle.contains(it)) {
            say_line!("pillion: no longer: covers nothing: {old}");
        }
        self.idle = idle;
        &self.idle
    }
}

/// What it means that only a part of the hierarchy can be seen, if that is so.
pub fn of_the_view() -> Option<String> {
    let mount = cgroup2_mount().ok().filter(|mount| !is_whole(mount))?;
    Some(format!(
        "only sockets of this container are seen, for {} is a part of the host's cgroups: to \
         cover others as well, give it the host's cgroup namespace and /sys/fs/cgroup",
        mount.display()
    ))
}
