use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::stat::fstat;

use crate::contract::types;
use crate::device_attachments::DeviceAttachments;
use crate::governor::Governor;
use crate::link::{self, CgroupLinks, Target};
use crate::policy::bytes;
use crate::quota::Room;
use crate::selection::Step;
use crate::{
    Change, Device, Error, FlowReader, Namespace, Observation, Policy, Programs, Readings,
    Requests, Selection, Totals, open_cgroup2,
};

/// How long following may take at a time: signals wait meanwhile.
const A_WHILE: Duration = Duration::from_millis(50);

/// How long the end may take.
const A_SECOND: Duration = Duration::from_secs(1);

/// The bundler's programs at work. Dropping it, or the end of the process, detaches them all.
#[derive(Debug)]
pub struct Attachment {
    programs: Programs,
    devices: DeviceAttachments,
    /// Namespaces whose connections are still to be taken in.
    unreviewed: Vec<Namespace>,
    /// Those served no longer whose connections are still to be let go of.
    left: Vec<Namespace>,
    links: CgroupLinks,
    /// The id of the cgroup that they are attached to; 0 of the root.
    cgroup: u64,
    room: Room,
    governor: Option<Governor>,
}

impl Attachment {
    /// Bundles the connections of a cgroup (and those below it) on the devices given.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no tcx, [`Error::CgroupTaken`],
    /// [`Error::NotPermitted`]; [`Error::System`].
    pub fn new(programs: Programs, cgroup: BorrowedFd, devices: &[Device]) -> Result<Self, Error> {
        let devices = DeviceAttachments::at(&programs, devices)?;
        Self::on(programs, cgroup, devices)
    }

    /// Bundles the connections of a cgroup (and those below it) on the devices of a selection, as
    /// they are by now. Where `patience` ends before all have been attached to,
    /// [`Attachment::follow`] sees to the others. What can wait, and is tried again, is given back
    /// as well.
    ///
    /// # Errors
    /// As [`Attachment::new`], [`Error::NoRoom`], and as [`Selection::devices`]: if a device that
    /// is named, or each of those that are not, cannot be attached to.
    pub fn begin(
        programs: Programs,
        cgroup: BorrowedFd,
        selection: &mut Selection,
        patience: Option<Duration>,
    ) -> Result<(Self, Vec<Change>), Error> {
        let mut changes = Vec::new();
        let devices = DeviceAttachments::begin(&programs, selection, patience, &mut changes)?;
        Ok((Self::on(programs, cgroup, devices)?, changes))
    }

    /// As [`Attachment::begin`], the connections of all cgroups, those included that exist already.
    ///
    /// # Errors
    /// As [`Attachment::begin`], [`open_cgroup2`] and [`Attachment::review`].
    pub fn begin_everywhere(
        programs: Programs,
        selection: &mut Selection,
        patience: Option<Duration>,
    ) -> Result<(Self, Vec<Change>), Error> {
        let cgroup = open_cgroup2()?;
        let (attachment, changes) = Self::begin(programs, cgroup.as_fd(), selection, patience)?;
        attachment.review()?;
        Ok((attachment, changes))
    }

    fn on(
        mut programs: Programs,
        cgroup: BorrowedFd,
        devices: DeviceAttachments,
    ) -> Result<Self, Error> {
        let governor = programs.governor.take().map(Governor::start).transpose()?;
        let links = CgroupLinks::begin(&programs, cgroup)?;
        Ok(Self {
            governor,
            programs,
            devices,
            unreviewed: Vec::new(),
            left: Vec::new(),
            links,
            cgroup: id_below_root(cgroup).map_err(link::cgroup_error)?,
            room: Room::default(),
        })
    }

    /// Leaves devices and named network namespaces that are gone, and takes those of the selection
    /// that have come. What fails is tried again. Where this takes long, it goes on with the next
    /// call.
    pub fn follow(&mut self, selection: &mut Selection) -> Vec<Change> {
        let mut changes = Vec::new();
        let looked = selection.look(|device| self.devices.has(device), &mut changes);
        self.devices
            .detach_the_gone(selection, &looked, &mut changes);
        selection.forget_troubles_of_the_gone();
        self.serve(selection, &mut changes);
        let patience = Some(A_WHILE);
        let more = self
            .devices
            .attach(&self.programs, selection, patience, &mut changes);
        selection.set_clock(more);
        changes
    }

    /// Goes over to what another selection has, and lets go of the connections of network namespaces
    /// that it has not. What fails is tried again, as by [`Attachment::follow`].
    ///
    /// # Errors
    /// [`Error::System`] where connections could not be let go of: they go on as they were.
    pub fn change(
        &mut self,
        selection: &mut Selection,
        other: Selection,
    ) -> Result<Vec<Change>, Error> {
        *selection = other;
        self.devices.share_among(&self.programs, selection);
        let changes = self.follow(selection);
        self.let_go()?;
        Ok(changes)
    }

    /// Lets go of the connections of network namespaces that are served no longer: they may go on, as
    /// that of a container which is called otherwise now.
    fn let_go(&mut self) -> Result<(), Error> {
        if !self.left.is_empty() {
            self.review_in(&self.left, types::set_on::SET_ON_NONE)?;
            self.left.clear();
        }
        Ok(())
    }

    /// Takes in the connections of the selection's namespaces, and of no others.
    fn serve(&mut self, selection: &mut Selection, changes: &mut Vec<Change>) {
        let namespaces = selection.namespaces();
        self.left.extend(self.programs.served.keep(&namespaces));
        // What fails is tried again with the next call.
        let _ = self.let_go();
        self.unreviewed.retain(|it| namespaces.contains(it));
        for namespace in namespaces {
            let step = Step::Serve(namespace.id());
            let is_served = self.programs.served.namespaces().contains(&namespace);
            if !is_served && selection.troubles.may_try(&step) {
                let begun = self.programs.served.begin(&namespace);
                let begun = selection.troubles.outcome_of(step, begun, changes);
                self.unreviewed.extend(begun.map(|()| namespace));
            }
        }
        for namespace in std::mem::take(&mut self.unreviewed) {
            let step = Step::Review(namespace.id());
            let reviewed = selection.troubles.may_try(&step).then(|| {
                // None of its connections has met a rule yet, whether it finds a place or not.
                let all = types::set_on::SET_ON_ALL;
                let reviewed = self.review_in(std::slice::from_ref(&namespace), all);
                selection.troubles.outcome_of(step, reviewed, changes)
            });
            if reviewed.flatten().is_none() {
                self.unreviewed.push(namespace);
            }
        }
    }

    /// The devices that the programs are attached to.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.devices()
    }

    /// Applies the rules to the connections that exist already in the network namespaces
    /// of the scope (with [`Scope::Anywhere`](crate::Scope), in this one): takes in those
    /// covered, changes the options of those taken in before, which keep their history and
    /// counters, and lets go of those no longer covered. All that are covered get the companions of
    /// their rules. Returns how many are covered.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel has no TCP iterator.
    pub fn review(&self) -> Result<usize, Error> {
        self.review_in(self.programs.served.namespaces(), types::set_on::SET_ON_ALL)
    }

    /// Reviews all network namespaces with [`Attachment::follow`], which tries again what fails.
    pub fn review_until_done(&mut self, selection: &mut Selection) -> Vec<Change> {
        self.unreviewed = self.programs.served.namespaces().to_vec();
        self.follow(selection)
    }

    /// As [`Attachment::review`], but a connection that its rule covered before keeps what its
    /// application has set in the place of a companion.
    ///
    /// # Errors
    /// As [`Attachment::review`].
    pub fn look_again(&self) -> Result<usize, Error> {
        self.review_in(self.programs.served.namespaces(), types::set_on::SET_ON_NEW)
    }

    /// Says which connections the next review is of, and which of them have companions set.
    fn prepare_review(&self, on: types::set_on) -> Result<(), Error> {
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

    /// Sets companions on these connections of theirs.
    fn review_in(&self, namespaces: &[Namespace], on: types::set_on) -> Result<usize, Error> {
        self.prepare_review(on)?;
        let failed = |error| Error::system("take in connections that exist already", error);
        let link =
            link::attach(self.programs.review.as_fd(), &Target::Iterator(None)).map_err(failed)?;
        let mut covered = 0;
        for namespace in namespaces {
            let run = namespace.enter(|| link::run_iterator(link.as_fd()))?;
            covered += run.map_err(failed)?.len();
        }
        Ok(covered)
    }

    /// Attaches again what others have detached. To be called each second or so; returns what is worth
    /// telling.
    pub fn stay(&mut self, selection: &mut Selection) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(governor) = &self.governor {
            let governed = governor.outcome();
            selection
                .troubles
                .outcome_of(Step::Govern, governed, &mut changes);
        }
        if self.links.drop_the_detached() {
            let said = selection.troubles.failed(Step::Stay, Error::Detached);
            changes.extend(said.map(Change::Refused));
        }
        if selection.troubles.has(&Step::Stay) && selection.troubles.may_try(&Step::Stay) {
            let attached = self.links.attach_the_missing(&self.programs);
            let attached = selection
                .troubles
                .outcome_of(Step::Stay, attached, &mut changes);
            changes.extend(attached.map(|()| Change::Back));
        }
        let detached = self.devices.detached_in();
        if !detached.is_empty() {
            selection.look_again_at(&detached);
            changes.extend(self.follow(selection));
        }
        changes
    }

    /// Where connections have found no place, as there were as many as
    /// [`Policy::max_connections`] allows: looks how many there are still, and takes in those
    /// that have a place now. To be called each second or so; returns what is worth telling.
    pub fn recount(&mut self, selection: &mut Selection) -> Vec<Change> {
        let mut changes = Vec::new();
        if selection.troubles.may_try(&Step::Count) {
            let counted = self.count();
            let counted = selection
                .troubles
                .outcome_of(Step::Count, counted, &mut changes);
            changes.extend(counted.flatten());
        }
        changes
    }

    fn count(&mut self) -> Result<Option<Change>, Error> {
        let refused = self.totals()?.over_limit;
        let is_wanted = self.room.is_wanted(refused);
        let mut is_full = self.recount_places(is_wanted)?;
        if is_wanted && self.room.try_again() {
            let namespaces = self.programs.served.namespaces();
            self.review_in(namespaces, types::set_on::SET_ON_NONE)?;
            is_full = self.recount_places(true)?;
            // What was refused meanwhile may have come too late for the review.
            self.room.looked_into(refused);
        }
        Ok(self.room.note(is_full))
    }

    fn recount_places(&mut self, always: bool) -> Result<bool, Error> {
        let Programs { places, served, .. } = &mut self.programs;
        places.recount(always, served.namespaces())
    }

    /// Puts other rules into force, for new connections at once; those that exist meet them
    /// in [`Attachment::review`]. The scope stays as it was.
    ///
    /// # Errors
    /// [`Error::TooManyRules`], [`Error::System`]: the rules in force are as they were.
    pub fn replace_rules(&self, policy: &Policy) -> Result<(), Error> {
        self.programs.tables.store(policy)
    }

    /// What the programs did so far, on all connections.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        Totals::read(&self.programs.totals)
    }

    /// The totals and the number of connections, for another thread to read.
    ///
    /// # Errors
    /// [`Error::System`] if there are too many open files.
    pub fn readings(&self) -> Result<Readings, Error> {
        let failed = |error| Error::system("keep the totals", error);
        let totals = MapHandle::try_from(&self.programs.totals);
        Ok(Readings {
            totals: totals.map_err(|error| failed(io::Error::other(error)))?,
            connections: self.programs.places.connections().map_err(failed)?,
        })
    }

    /// What applications asked of their sockets.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        self.programs.requests()
    }

    /// A reader of the connections that these programs bundle, to be used as often as is wanted.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Load`].
    pub fn flows(&self) -> Result<FlowReader, Error> {
        FlowReader::of(self.programs.flows.as_fd())
    }

    /// What was observed of each connection so far, where [`Policy::observing`] has it so. One that
    /// is found gone twice in a row is told of as ended then, and no more.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn observations(&mut self) -> Result<Vec<Observation>, Error> {
        let namespaces = self.programs.served.namespaces();
        let reader = self.programs.observations.as_mut();
        reader.map_or(Ok(Vec::new()), |reader| reader.read(namespaces))
    }

    /// Bundles no more, and detaches the programs once what is on its way is acknowledged, a second
    /// later at most: until then, what it reports is kept from TCP, and losses are reacted to.
    pub fn finish(&mut self) {
        self.devices.stop_bundling();
        let namespaces = self.programs.served.namespaces();
        let places = &self.programs.places;
        places.await_acknowledged(namespaces, A_SECOND);
        self.detach();
    }

    /// Detaches the programs at once, and gives them back.
    #[must_use]
    pub fn into_programs(mut self) -> Programs {
        self.detach();
        self.programs.governor = self.governor.take().and_then(Governor::stop);
        self.programs
    }

    /// Detaches the programs at once; what they did can still be read.
    pub fn detach(&mut self) {
        self.devices.detach();
        self.links.detach();
    }
}

/// The id of a cgroup as the kernel's structures have it: its folder's inode. 0 for the root of all,
/// whose is 1; a cgroup namespace's has its own.
fn id_below_root(cgroup: BorrowedFd) -> io::Result<u64> {
    let inode = fstat(cgroup)?.st_ino;
    Ok(if inode == 1 { 0 } else { inode })
}
