//! While pillion runs: devices, connections and the rules in force are followed.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{
    Attachment, Change, Error, FollowedRules, Policy, Selection, cgroup2_mount, is_whole,
};
use pillion_cli::print::say_line;

/// How often it is looked whether connections find no place, or others have detached something, and
/// whether something else is due.
const RECOUNT: Duration = Duration::from_secs(1);

/// What goes along with the following.
pub trait Watcher {
    /// Is told of each change.
    fn tell(&mut self, change: &Change);

    /// Is called about each second.
    fn keep_up(&mut self, _attachment: &Attachment, _selection: &Selection) {}
}

/// Waits until `signals` can be read, and follows devices and connections until then.
pub fn until_readable(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    watcher: &mut impl Watcher,
) -> nix::Result<()> {
    until_readable_or(signals, attachment, selection, None, watcher).map(drop)
}

/// Waits until `signals` can be read or the moment `end` comes, and follows devices and connections
/// until then; true if `signals` can be read.
pub fn until_readable_or(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    end: Option<Instant>,
    watcher: &mut impl Watcher,
) -> nix::Result<bool> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(selection.as_fd(), PollFlags::POLLIN),
        ];
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let patience = left.map_or(RECOUNT, |left| left.min(RECOUNT));
        poll(&mut fds, Some(patience))?;
        let is_ready = |fd: &PollFd| fd.any().unwrap_or(false);
        let (signal, devices) = (is_ready(&fds[0]), is_ready(&fds[1]));
        if devices {
            let changes = attachment.follow(selection);
            changes.iter().for_each(|change| watcher.tell(change));
        }
        for look in [Attachment::stay, Attachment::recount] {
            let changes = look(attachment, selection);
            changes.iter().for_each(|change| watcher.tell(change));
        }
        watcher.keep_up(attachment, selection);
        if signal || left.is_some_and(|left| left.is_zero()) {
            return Ok(signal);
        }
    }
}

// The rules in force, and warnings about them, while cgroups and containers that they name come and go.

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
