use pillion_bpf::{Attachment, Change, Selection};
use pillion_cli::exit::one_line;
use pillion_cli::print::say_line;

use crate::follow::Watcher;
use crate::rules::Rules;
use crate::service::Service;
use crate::succession::Succession;

/// Tells of changes, and has the rules follow them.
pub struct Follower {
    pub service: Service,
    pub succession: Succession,
    rules: Rules,
    /// What cannot be seen as long as pillion runs.
    view: Option<String>,
}

impl Follower {
    pub fn new(service: Service, rules: Rules, view: Option<String>) -> Self {
        Self {
            service,
            succession: Succession::default(),
            rules,
            view: view.inspect(|view| say_line!("pillion: {view}")),
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

/// Says why this one goes on.
pub fn say_no_successor(why: &anyhow::Error) {
    say_line!("pillion: no successor: {}", one_line(why));
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
        if let Err(error) = self.succession.look() {
            say_no_successor(&error);
            // It may have looked at all connections already, by rules of its own.
            if let Err(error) = attachment.look_again() {
                say_line!("pillion: {error}");
            }
        }
    }
}
