//! Putting the bundler to work.

use std::time::Duration;

use anyhow::Result;
use pillion_bpf::{Attachment, Namespaces, Policy, Programs, Selection};
use pillion_cli::print::{say, say_line};
use pillion_cli::settings::{Endpoint, Telling};

use super::Args;
use super::asked::Asked;
use super::at_work::AtWork;
use super::dry_run::names;
use super::follower::Follower;
use crate::chosen;
use crate::follow::Watcher;
use crate::privilege;
use crate::rules::{Rules, of_the_view};
use crate::service::{Announced, Service};
use crate::stats::Stats;
use crate::succession::inherited;

/// After which it is at work on the devices that it has, and takes the others as it goes: a service
/// manager and a predecessor wait for a minute or so.
const PATIENCE: Duration = Duration::from_secs(20);

impl Args {
    /// Bundles what is asked for, where that is to be, and gives up what that takes no longer.
    pub(super) fn begin(
        &self,
        asked: Asked,
        mut selection: Selection,
        stats: Stats,
        announced: Announced,
    ) -> Result<AtWork<'_>> {
        let Asked {
            policy,
            namespaces,
            telling,
        } = asked;
        let chosen = self.connections(&policy);
        let policy = Policy {
            max_connections: self.bundling.max_connections,
            governing: true,
            ..policy
        }
        .at(&selection);
        // Before they go to the kernel: what comes and goes meanwhile is seen by the difference.
        let rules = Rules::of(policy.clone())?;
        let programs = self.load(&policy)?;
        let janitor = chosen::watch(&programs, &namespaces)?;
        let service = Service::begin(&telling, stats, announced)?;
        // It keeps its network namespaces from ending.
        drop(policy);
        let (attachment, changes) =
            Attachment::begin_everywhere(programs, &mut selection, Some(PATIENCE))?;
        let mut follower = Follower::new(service, rules, of_the_view());
        let service = &mut follower.service;
        service.has_begun(chosen.clone(), &attachment, &selection)?;
        say_line!(
            "pillion: bundling {chosen} on {}; end with Ctrl-C",
            names(attachment.devices())
        );
        for change in changes {
            follower.tell(&change);
        }
        follower.tell_of_idle(&selection);
        let may_enter = !namespaces.is_own_alone();
        privilege::keep_what_following_takes(may_enter, self.has_files(&telling, &namespaces));
        Ok(AtWork {
            follower,
            attachment,
            _janitor: janitor,
            selection,
            namespaces,
            telling,
            may_enter,
            args: self,
        })
    }

    /// Loads the programs, to go on with what applications asked of a predecessor's.
    fn load(&self, policy: &Policy) -> Result<Programs> {
        let programs = Programs::load_after(policy, inherited())?;
        if inherited().is_some_and(|left| !programs.requests().are_as(left)) {
            say(
                "pillion: what applications have asked is forgotten: this version keeps it otherwise",
            );
        }
        Ok(programs.by(self.bundling.hook()))
    }

    /// True if files of others are read or written from now on.
    fn has_files(&self, telling: &Telling, namespaces: &Namespaces) -> bool {
        self.config.is_some()
            || telling.stats.is_some()
            || matches!(telling.metrics, Some(Endpoint::Unix(_)))
            || !namespaces.of_containers.is_empty()
    }
}
