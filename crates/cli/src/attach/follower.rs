use pillion_bundler::{Attachment, Change, Selection};

use crate::follow::Watcher;
use crate::print::say;
use crate::rules::Rules;
use crate::service::Service;

/// Tells of changes, and has the rules follow them.
pub struct Follower {
    pub service: Service,
    rules: Rules,
    /// What cannot be seen as long as pillion runs.
    view: Option<String>,
}

impl Follower {
    pub fn new(service: Service, rules: Rules, view: Option<String>) -> Self {
        Self {
            service,
            rules,
            view: view.inspect(|view| say(&format!("pillion: {view}"))),
        }
    }

    /// Other rules are in force now.
    pub fn reloaded(&mut self, rules: Rules) {
        self.rules.replace(rules);
    }

    /// Says what covers nothing, each once until it covers something.
    pub fn tell_of_idle(&mut self, selection: &Selection) {
        let idle = self.rules.tell_of_idle(selection);
        let view = self.view.iter();
        self.service.notes(view.chain(idle).cloned().collect());
    }
}

impl Watcher for Follower {
    fn tell(&mut self, change: &Change) {
        self.service.tell(change);
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        let failing = self.rules.keep_up(attachment, selection);
        self.service.rules_fail(failing);
        self.tell_of_idle(selection);
        self.service.keep_up(attachment, selection);
    }
}
