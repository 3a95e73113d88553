//! What is said in place of any work.

use anyhow::{Error, Result};
use pillion_bpf::{Device, FollowedRules, Policy, Programs, cgroup2_mount};
use pillion_cli::print::{print_line, say_line};

use super::Args;
use super::asked::Asked;
use crate::service::is_taken;

impl Args {
    /// That the file has no mistake, and what its rules do not cover now.
    pub(super) fn check_config(&self, asked: Asked) -> Result<()> {
        let chosen = self.connections(&asked.policy);
        let containers = asked.namespaces.containers();
        let rules = FollowedRules::of(Policy {
            running: containers.running().to_vec(),
            ..asked.policy
        })?;
        for idle in rules.idle(containers.in_version_1()) {
            say_line!("pillion: now covers nothing: {idle}");
        }
        print_line!("no mistake: would bundle {chosen}")
    }

    /// What would be bundled, and where, by programs that the kernel has and this user may load.
    pub(super) fn dry_run(&self, asked: &Asked) -> Result<()> {
        Programs::load(&asked.policy)?;
        let metrics = asked.telling.metrics.as_ref();
        let metrics = metrics.map(|it| Ok::<_, Error>((it, is_taken(it)?)));
        let metrics = metrics.transpose()?;
        let devices = self.find(&asked.namespaces)?.devices()?;
        let chosen = self.connections(&asked.policy);
        print_line!("would bundle {chosen} on {}", names(&devices))?;
        print_line!("would attach to the cgroup {}", cgroup2_mount()?.display())?;
        if let Some((endpoint, is_taken)) = metrics {
            let now = match is_taken {
                true => ", where somebody serves now",
                false => "",
            };
            print_line!("would serve metrics at {endpoint}{now}")?;
        }
        match self.config {
            Some(_) => Ok(()),
            None => print_line!("with {}", self.bundling.words()?),
        }
    }
}

/// Devices, in words.
pub(super) fn names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    let devices = devices.into_iter();
    let names: Vec<_> = devices.map(ToString::to_string).collect();
    match names.is_empty() {
        true => "no device yet".to_owned(),
        false => names.join(", "),
    }
}
