//! The rules in force, while cgroups that they name come and go.

use std::path::Path;

use pillion_bundler::{Attachment, CgroupName, Change, Error, Policy, Rule, Selection, is_whole};

use crate::follow::Watcher;
use crate::print::say;
use crate::service::Service;

/// The rules, and the cgroups that they were put into force with.
pub struct Rules {
    policy: Policy,
    cgroups: Vec<Option<Vec<u64>>>,
}

impl Rules {
    pub fn of(policy: Policy) -> Self {
        let cgroups = cgroups(&policy);
        Self { policy, cgroups }
    }

    /// Puts the rules into force again if cgroups have come or gone.
    fn keep_up(&mut self, attachment: &Attachment) -> Result<(), Error> {
        let now = cgroups(&self.policy);
        if now != self.cgroups {
            self.cgroups = now;
            attachment.replace_rules(&self.policy)?;
            attachment.review()?;
        }
        Ok(())
    }

    /// The rules that no connection can match now, in words.
    pub fn idle(&self) -> impl Iterator<Item = String> {
        let rules = (1..).zip(&self.policy.rules).zip(&self.cgroups);
        rules.filter_map(|((number, rule), cgroups)| {
            let is_idle = cgroups.as_ref().is_some_and(Vec::is_empty);
            let names = || rule.cgroups.iter().map(CgroupName::to_string);
            let names = is_idle.then(|| names().collect::<Vec<_>>().join(" or "))?;
            Some(format!("rule {number}: no cgroup is called {names}"))
        })
    }
}

fn cgroups(policy: &Policy) -> Vec<Option<Vec<u64>>> {
    policy.rules.iter().map(Rule::cgroup_ids).collect()
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

/// Tells of changes, and has the rules follow them.
pub struct Follower {
    pub service: Service,
    rules: Rules,
    /// What cannot be seen as long as pillion runs.
    view: Option<String>,
    /// What covered nothing at the last look.
    idle: Vec<String>,
}

impl Follower {
    pub fn new(service: Service, rules: Rules, view: Option<String>) -> Self {
        Self {
            service,
            rules,
            view: view.inspect(|view| say(&format!("pillion: {view}"))),
            idle: Vec::new(),
        }
    }

    /// Other rules are in force now.
    pub fn reloaded(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Says what covers nothing, each once until it covers something.
    pub fn tell_of_idle(&mut self, selection: &Selection) {
        let names = selection.unmatched();
        let names = names.map(|name| format!("no {name} is there"));
        let idle: Vec<_> = self.rules.idle().chain(names).collect();
        for new in idle.iter().filter(|it| !self.idle.contains(it)) {
            say(&format!("pillion: covers nothing: {new}"));
        }
        for old in self.idle.iter().filter(|it| !idle.contains(it)) {
            say(&format!("pillion: covers something again; before, {old}"));
        }
        let view = self.view.iter().cloned();
        self.service
            .notes(view.chain(idle.iter().cloned()).collect());
        self.idle = idle;
    }
}

impl Watcher for Follower {
    fn tell(&mut self, change: &Change) {
        self.service.tell(change);
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        if let Err(error) = self.rules.keep_up(attachment) {
            let why = format!("cgroups have changed, and the rules follow only in part: {error}");
            say(&format!("pillion: {why}"));
            self.service.failed(why);
        }
        self.tell_of_idle(selection);
        self.service.keep_up(attachment, selection);
    }
}
