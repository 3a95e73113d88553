use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::stat::fstat;

use crate::attach_targets::Step;
use crate::cgroup_links::{self, CgroupLinks};
use crate::contract::types;
use crate::device_attachments::DeviceAttachments;
use crate::governor::Governor;
use crate::link::{self, AttachPoint};
use crate::policy::bytes;
use crate::quota::SlotRetry;
use crate::{
    AttachTargets, Change, Device, Error, FlowReader, Namespace, Observation, Outcome, Policy,
    Programs, Requests, Totals, TotalsReader, open_cgroup2,
};

/// Maximum time of one [`Attachment::follow`], because signals wait meanwhile.
const FOLLOW_TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum time to wait for ACKs before the programs are detached.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The attached bundler. Dropping it, or the end of the process, detaches all programs.
#[derive(Debug)]
pub struct Attachment {
    programs: Programs,
    devices: DeviceAttachments,
    /// Namespaces whose existing connections the rules were not applied to yet.
    not_applied: Vec<Namespace>,
    /// Namespaces out of scope whose connections are still bundled.
    out_of_scope: Vec<Namespace>,
    links: CgroupLinks,
    /// Id of the cgroup that `links` are attached to; 0 for the root.
    cgroup: u64,
    slot_retry: SlotRetry,
    governor: Option<Governor>,
    /// Segments that had left by another device when the programs were detached from devices.
    unattached_at_finish: Option<u64>,
}

/// Result of a review: how many connections a rule or their application bundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reviewed {
    /// Connections that are covered now.
    pub covered: usize,
    /// Connections that stay plain, because they have no slot of
    /// [`Policy::max_connections`](crate::Policy), or the kernel has no memory.
    pub refused: usize,
}

impl Attachment {
    /// Bundles the connections of a cgroup (and those below it) on the devices given.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no tcx, [`Error::CgroupTaken`],
    /// [`Error::NotPermitted`]; [`Error::System`].
    pub fn new(programs: Programs, cgroup: BorrowedFd, devices: &[Device]) -> Result<Self, Error> {
        let devices = DeviceAttachments::attach_all(&programs, devices)?;
        Self::attach_cgroup(programs, cgroup, devices)
    }

    /// Bundles the connections of a cgroup (and those below it) on the targets' current devices.
    /// If `timeout` expires first, [`Attachment::follow`] attaches to the rest. Returns failures
    /// that are retried as well.
    ///
    /// # Errors
    ///
    /// As [`Attachment::new`], [`Error::TooManyDevices`], and as [`AttachTargets::devices`]: if a named
    /// device, or every unnamed one, cannot be attached to.
    pub fn start(
        programs: Programs,
        cgroup: BorrowedFd,
        targets: &mut AttachTargets,
        timeout: Option<Duration>,
    ) -> Result<(Self, Vec<Change>), Error> {
        let mut changes = Vec::new();
        let devices = DeviceAttachments::start(&programs, targets, timeout, &mut changes)?;
        Ok((Self::attach_cgroup(programs, cgroup, devices)?, changes))
    }

    /// As [`Attachment::start`], for all cgroups and including existing connections.
    ///
    /// # Errors
    /// As [`Attachment::start`], [`open_cgroup2`] and [`Attachment::review`].
    pub fn start_everywhere(
        programs: Programs,
        targets: &mut AttachTargets,
        timeout: Option<Duration>,
    ) -> Result<(Self, Vec<Change>), Error> {
        let cgroup = open_cgroup2()?;
        let (attachment, changes) = Self::start(programs, cgroup.as_fd(), targets, timeout)?;
        attachment.review()?;
        Ok((attachment, changes))
    }

    fn attach_cgroup(
        mut programs: Programs,
        cgroup: BorrowedFd,
        devices: DeviceAttachments,
    ) -> Result<Self, Error> {
        let governor = programs.governor.take().map(Governor::start).transpose()?;
        let links = CgroupLinks::attach_all(&programs, cgroup)?;
        Ok(Self {
            governor,
            programs,
            devices,
            not_applied: Vec::new(),
            out_of_scope: Vec::new(),
            links,
            cgroup: cgroup_id(cgroup).map_err(cgroup_links::cgroup_error)?,
            slot_retry: SlotRetry::default(),
            unattached_at_finish: None,
        })
    }

    /// Detaches from removed devices and named network namespaces, and attaches to new ones of the
    /// targets. Failures are retried; long work continues with the next call.
    pub fn follow(&mut self, targets: &mut AttachTargets) -> Vec<Change> {
        let mut changes = Vec::new();
        let listed = targets.refresh(|device| self.devices.contains(device), &mut changes);
        self.devices.detach_gone(targets, &listed, &mut changes);
        targets.forget_retries_of_gone();
        self.update_namespaces(targets, &mut changes);
        let timeout = Some(FOLLOW_TIMEOUT);
        let more = self
            .devices
            .attach(&self.programs, targets, timeout, &mut changes);
        targets.set_timer(more);
        changes
    }

    /// Switches to other targets, and releases the connections of network namespaces that they
    /// lack. Failures are retried by [`Attachment::follow`].
    ///
    /// # Errors
    ///
    /// [`Error::System`] if connections could not be released: they remain bundled.
    pub fn change(
        &mut self,
        targets: &mut AttachTargets,
        new_targets: AttachTargets,
    ) -> Result<Vec<Change>, Error> {
        *targets = new_targets;
        self.devices.share_limit(&self.programs, targets);
        let changes = self.follow(targets);
        self.release_out_of_scope()?;
        Ok(changes)
    }

    /// Releases the connections of network namespaces that left the scope. They may still exist, as
    /// after a container was renamed.
    fn release_out_of_scope(&mut self) -> Result<(), Error> {
        if !self.out_of_scope.is_empty() {
            self.review_in(&self.out_of_scope, types::set_on::SET_ON_NONE)?;
            self.out_of_scope.clear();
        }
        Ok(())
    }

    /// Covers the connections of the targets' namespaces, and of no others. Failures are retried.
    fn update_namespaces(&mut self, targets: &mut AttachTargets, changes: &mut Vec<Change>) {
        let namespaces = targets.namespaces();
        self.out_of_scope
            .extend(self.programs.scoped.retain(&namespaces));
        // Failures are retried with the next call.
        let _ = self.release_out_of_scope();
        self.not_applied.retain(|it| namespaces.contains(it));
        for namespace in namespaces {
            let step = Step::AddNamespace(namespace.id());
            let is_in_scope = self.programs.scoped.namespaces().contains(&namespace);
            if !is_in_scope && targets.retries.is_due(&step) {
                let added = self.programs.scoped.add(&namespace);
                let added = targets.retries.record(step, added, changes);
                self.not_applied.extend(added.map(|()| namespace));
            }
        }
        for namespace in std::mem::take(&mut self.not_applied) {
            let step = Step::Review(namespace.id());
            let reviewed = targets.retries.is_due(&step).then(|| {
                // None of its connections has been checked against the rules yet.
                let all = types::set_on::SET_ON_ALL;
                let reviewed = self.review_in(std::slice::from_ref(&namespace), all);
                targets.retries.record(step, reviewed, changes)
            });
            if reviewed.flatten().is_none() {
                self.not_applied.push(namespace);
            }
        }
    }

    /// The devices that the programs are attached to.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.devices()
    }

    /// Cookies of the network namespaces of the scope, without the calling thread's.
    pub fn other_namespaces(&self) -> impl Iterator<Item = u64> {
        let namespaces = self.programs.scoped.namespaces().iter();
        namespaces.filter_map(Namespace::id)
    }

    /// The devices at which another tcx program runs before pillion's, and that program's id.
    #[must_use]
    pub fn preceded(&self) -> Vec<(&Device, u32)> {
        self.devices.preceded()
    }

    /// Applies the rules to existing connections in the network namespaces of the scope (with
    /// [`Scope::Anywhere`](crate::Scope), only the calling thread's). Adds covered connections,
    /// changes the options of known ones, which keep their history and counters, and releases the
    /// others. All connections get the TCP options of their rules.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel lacks the TCP iterator.
    pub fn review(&self) -> Result<Reviewed, Error> {
        self.review_in(self.programs.scoped.namespaces(), types::set_on::SET_ON_ALL)
    }

    /// Reviews all network namespaces with [`Attachment::follow`], which tries again what fails.
    pub fn review_until_done(&mut self, targets: &mut AttachTargets) -> Vec<Change> {
        self.not_applied = self.programs.scoped.namespaces().to_vec();
        self.follow(targets)
    }

    /// As [`Attachment::review`], but a connection that its rule covered before keeps values that
    /// its application set instead of a TCP option.
    ///
    /// # Errors
    ///
    /// As [`Attachment::review`].
    pub fn review_changed(&self) -> Result<Reviewed, Error> {
        self.review_in(self.programs.scoped.namespaces(), types::set_on::SET_ON_NEW)
    }

    /// Configures the next review: its connections, and which of them get TCP options.
    fn store_review(&self, on: types::set_on) -> Result<(), Error> {
        let review = types::review {
            cgroup: self.cgroup,
            set_on: on,
            ..Default::default()
        };
        let key = 0u32.to_ne_bytes();
        let reviewed = &self.programs.reviewed;
        let stored = reviewed.update(&key, bytes(&review), MapFlags::ANY);
        stored
            .map_err(|error| Error::system("prepare a review", io::Error::other(error.to_string())))
    }

    /// Reviews the connections of these namespaces; `on`: which of them get TCP options.
    fn review_in(&self, namespaces: &[Namespace], on: types::set_on) -> Result<Reviewed, Error> {
        self.store_review(on)?;
        let failed = |error| Error::system("take in connections that exist already", error);
        let link = link::attach(self.programs.review.as_fd(), &AttachPoint::Iterator(None))
            .map_err(failed)?;
        let mut reviewed = Reviewed::default();
        for namespace in namespaces {
            let run = namespace.enter(|| link::run_iterator(link.as_fd()))?;
            for result in run.map_err(failed)? {
                match u32::from(result) == types::review_result::REVIEW_COVERED.0 {
                    true => reviewed.covered += 1,
                    false => reviewed.refused += 1,
                }
            }
        }
        Ok(reviewed)
    }

    /// Reattaches programs that others have detached or bypass. Call it about once a second; returns the
    /// changes to report.
    pub fn reattach(&mut self, targets: &mut AttachTargets) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(governor) = &self.governor {
            let governed = governor.take_error();
            targets.retries.record(Step::Govern, governed, &mut changes);
        }
        if self.links.drop_detached() {
            let failure = targets.retries.failed(Step::StayAttached, Error::Detached);
            changes.extend(failure.map(Change::Failed));
        }
        if targets.retries.has_failed(&Step::StayAttached)
            && targets.retries.is_due(&Step::StayAttached)
        {
            let attached = self.links.attach_missing(&self.programs);
            let attached = targets
                .retries
                .record(Step::StayAttached, attached, &mut changes);
            changes.extend(attached.map(|()| Change::Reattached));
        }
        let mut detached = self.devices.namespaces_to_reattach();
        let bypassed = self
            .devices
            .check_segments(&self.programs, targets, &mut changes);
        detached.extend(bypassed);
        if !detached.is_empty() {
            targets.mark_changed(&detached);
            changes.extend(self.follow(targets));
        }
        changes
    }

    /// Handles connections without a slot because of [`Policy::max_connections`]: counts the taken
    /// slots, and adds connections that now get one. Call it about once a second; returns the
    /// changes to report.
    pub fn recount(&mut self, targets: &mut AttachTargets) -> Vec<Change> {
        let mut changes = Vec::new();
        if targets.retries.is_due(&Step::CountSlots) {
            let counted = self.count();
            let counted = targets
                .retries
                .record(Step::CountSlots, counted, &mut changes);
            changes.extend(counted.flatten());
        }
        changes
    }

    /// True if [`Policy::max_connections`], or half of it for one user, left no free slot at the last
    /// [`Attachment::recount`], or if an open connection has none.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.slot_retry.is_exhausted()
    }

    fn count(&mut self) -> Result<Option<Change>, Error> {
        let limit_hits = self.totals()?.connection_limit_hits;
        let needs_count = self.slot_retry.needs_count(limit_hits);
        let mut is_full = self.recount_slots(needs_count)?;
        if needs_count && self.slot_retry.try_start() {
            let namespaces = self.programs.scoped.namespaces();
            let reviewed = self.review_in(namespaces, types::set_on::SET_ON_NONE)?;
            is_full = self.recount_slots(true)?;
            // Hits during the review are handled by the next one.
            self.slot_retry.set_handled(limit_hits, reviewed.refused);
        }
        Ok(self.slot_retry.set_full(is_full))
    }

    fn recount_slots(&mut self, always: bool) -> Result<bool, Error> {
        let Programs { quota, scoped, .. } = &mut self.programs;
        quota.recount(always, scoped.namespaces())
    }

    /// Replaces the rules for new connections; [`Attachment::review`] applies them to existing ones.
    /// The scope does not change.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyRules`], [`Error::System`]: the rules remain unchanged.
    pub fn replace_rules(&self, policy: &Policy) -> Result<(), Error> {
        self.programs.tables.store(policy)
    }

    /// Reads the totals over all connections.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        let mut totals = Totals::read(&self.programs.totals)?;
        if let Some(at_finish) = self.unattached_at_finish {
            totals.counters.limit(Outcome::UnattachedDevice, at_finish);
        }
        Ok(totals)
    }

    /// The totals and the number of connections, for another thread to read.
    ///
    /// # Errors
    /// [`Error::System`] if there are too many open files.
    pub fn totals_reader(&self) -> Result<TotalsReader, Error> {
        let failed = |error| Error::system("keep the totals", error);
        let totals = MapHandle::try_from(&self.programs.totals);
        Ok(TotalsReader {
            totals: totals.map_err(|error| failed(io::Error::other(error)))?,
            connections: self.programs.quota.connections().map_err(failed)?,
        })
    }

    /// The requests of applications for their sockets.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        self.programs.requests()
    }

    /// A reader of these programs' connections, for repeated use.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::Load`].
    pub fn flows(&self) -> Result<FlowReader, Error> {
        FlowReader::for_map(self.programs.flows.as_fd())
    }

    /// Reads the observation of each connection, if [`Policy::observing`] is set. A connection
    /// missing in two consecutive reads is returned as ended, for the last time.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn observations(&mut self) -> Result<Vec<Observation>, Error> {
        let mut all = Vec::new();
        self.observe(|observation| all.push(observation))?;
        Ok(all)
    }

    /// As [`Attachment::observations`], but passes each one to `each`.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn observe(&mut self, each: impl FnMut(Observation)) -> Result<(), Error> {
        let namespaces = self.programs.scoped.namespaces();
        let reader = self.programs.observations.as_mut();
        reader.map_or(Ok(()), |reader| reader.read(namespaces, each))
    }

    /// Stops bundling, and detaches the programs after data in flight is acknowledged, at most a
    /// second later. Until then, duplicate reports are hidden from TCP, and losses cause reactions.
    pub fn finish(&mut self) {
        // From here on every segment passes no device with pillion.
        let totals = self.totals().ok();
        self.unattached_at_finish = totals.map(|it| it.counters.of(Outcome::UnattachedDevice));
        self.devices.stop_bundling();
        let namespaces = self.programs.scoped.namespaces();
        let quota = &self.programs.quota;
        quota.wait_for_acks(namespaces, FINISH_TIMEOUT);
        self.detach();
    }

    /// Detaches the programs immediately, and returns them.
    #[must_use]
    pub fn into_programs(mut self) -> Programs {
        self.detach();
        self.programs.governor = self.governor.take().and_then(Governor::stop);
        self.programs
    }

    /// Detaches the programs immediately; their results remain readable.
    pub fn detach(&mut self) {
        self.devices.detach();
        self.links.detach();
    }
}

/// The kernel's id of a cgroup: the inode of its folder. 0 for the root (inode 1); the root of a
/// cgroup namespace has its own id.
fn cgroup_id(cgroup: BorrowedFd) -> io::Result<u64> {
    let inode = fstat(cgroup)?.st_ino;
    Ok(if inode == 1 { 0 } else { inode })
}
