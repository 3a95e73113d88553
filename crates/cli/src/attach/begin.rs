//! Putting the bundler to work.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use pillion_bundler::{Attachment, Namespaces, Policy, Programs};
use pillion_settings::{Endpoint, Telling};

use super::Args;
use super::asked::Asked;
use super::at_work::AtWork;
use super::dry_run::names;
use super::follower::Follower;
use super::place::Place;
use crate::chosen;
use crate::follow::Watcher;
use crate::print::{say, say_line};
use crate::privilege;
use crate::rules::{Rules, of_the_view};
use crate::service::{Announced, Service};
use crate::stats::Stats;
use crate::succession::inherited;

/// After which it is at work on the devices that it has, and takes the others as it goes: a service
/// manager and a predecessor wait for a minute or so.
const PATIENCE: Duration = Duration::from_secs(20);

impl Args {
    /// Bundles what is asked for, in its place, and gives up what that takes no longer.
    pub(super) fn begin(
        &self,
        asked: Asked,
        place: Place,
        stats: Stats,
        announced: Announced,
    ) -> Result<AtWork<'_>> {
        let Asked {
            policy,
            namespaces,
            telling,
        } = asked;
        let Place {
            mut selection,
            devices,
            mount,
        } = place;
        let chosen = self.connections(&policy);
        let policy = Policy {
            running: selection.containers().to_vec(),
            scope: chosen::scope(&namespaces, &selection),
            max_connections: self.bundling.max_connections,
            ..policy
        };
        // Before they go to the kernel: what comes and goes meanwhile is seen by the difference.
        let rules = Rules::of(policy.clone())?;
        let programs = self.load(&policy)?;
        let janitor = chosen::watch(&programs, &namespaces)?;
        let cgroup = File::open(&mount).with_context(|| format!("open {}", mount.display()))?;
        let service = Service::begin(&telling, stats, announced)?;
        // They keep their network namespaces from ending, and may have changed since.
        drop((devices, policy));
        let (attachment, changes) =
            Attachment::begin(programs, cgroup.as_fd(), &mut selection, Some(PATIENCE))?;
        attachment.review()?;
        let mut follower = Follower::new(service, rules, of_the_view(&mount));
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
            janitor,
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
