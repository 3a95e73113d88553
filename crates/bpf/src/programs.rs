use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapHandle, Program};

use crate::constants::Constants;
use crate::loader::{DevicePrograms, Opened, own};
use crate::observation::ObservationReader;
use crate::places::Places;
use crate::policy::Tables;
use crate::remains::Remains;
use crate::scope::Served;
use crate::{Error, Hook, LinkHeader, Policy, Requests, governor};

/// The bundler's programs, loaded and verified by the kernel, not yet at work.
#[derive(Debug)]
pub struct Programs {
    ethernet: DevicePrograms,
    ip: DevicePrograms,
    pub(crate) ingress: OwnedFd,
    pub(crate) transmit: OwnedFd,
    pub(crate) sockops: OwnedFd,
    pub(crate) review: OwnedFd,
    /// Whether a review sets companions once more.
    pub(crate) reviewed: MapHandle,
    /// The program at setsockopt(2); `None` where the kernel lacks what it needs.
    pub(crate) setsockopt: Option<OwnedFd>,
    pub(crate) getsockopt: Option<OwnedFd>,
    pub(crate) tables: Tables,
    pub(crate) served: Served,
    pub(crate) places: Places,
    pub(crate) constants: Constants,
    /// The ids of the maps that are empty before the programs are at work.
    pub(crate) emptied: Vec<u32>,
    pub(crate) totals: MapHandle,
    pub(crate) flows: MapHandle,
    pub(crate) requests: Requests,
    pub(crate) observations: Option<ObservationReader>,
    /// The maps of the governor, where one is to decide.
    pub(crate) governor: Option<governor::Maps>,
    pub(crate) hook: Hook,
}

impl Programs {
    /// Loads the programs with one policy.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without the capabilities, [`Error::Load`] with the
    /// kernel's reason where it refuses, [`Error::TooManyRules`].
    pub fn load(policy: &Policy) -> Result<Self, Error> {
        Self::load_after(policy, None)
    }

    /// As [`Programs::load`], to go on with what another pillion has `left`, if that is of the same
    /// layout.
    ///
    /// # Errors
    /// As [`Programs::load`].
    pub fn load_after(policy: &Policy, left: Option<&Requests>) -> Result<Self, Error> {
        let constants = Constants::of(policy);
        let mut storage = MaybeUninit::uninit();
        let mut opened = Opened::by(policy, &constants, &mut storage)?;
        let layout = opened.layout();
        let left = left.filter(|left| *left.layout() == layout);
        if let Some(left) = left {
            opened.go_on_with(left)?;
        }
        let loaded = opened.load()?;
        let tables = loaded.tables()?;
        tables.store(policy)?;
        let (maps, programs) = (loaded.maps(), loaded.programs());
        let served = Served::new(loaded.map(&maps.pillion_namespaces)?, &policy.scope)?;
        let places = loaded.places(policy.max_connections)?;
        if left.is_some() {
            places.take_over(served.namespaces())?;
        }
        let is_observing = policy.observing.is_some();
        let observations = is_observing.then(|| loaded.observations(&places));
        let [ethernet, ip] = loaded.at_devices()?;
        Ok(Self {
            ethernet,
            ip,
            ingress: own(&programs.pillion_ingress)?,
            transmit: own(&programs.pillion_transmit)?,
            sockops: own(&programs.pillion_sockops)?,
            review: own(&programs.pillion_review)?,
            reviewed: loaded.map(&maps.pillion_reviewed)?,
            setsockopt: loaded.at_socket_option(&programs.pillion_setsockopt)?,
            getsockopt: loaded.at_socket_option(&programs.pillion_getsockopt)?,
            tables,
            served,
            places,
            constants,
            emptied: loaded.emptied()?,
            totals: loaded.map(&maps.pillion_totals)?,
            flows: loaded.map(&maps.pillion_flows)?,
            requests: Requests::left(own(&maps.pillion_requests)?, layout),
            observations: observations.transpose()?,
            governor: policy.governing.then(|| loaded.governor()).transpose()?,
            hook: Hook::of_this_kernel(),
        })
    }

    /// The programs, to be attached to devices by this hook, whatever else the kernel has.
    #[must_use]
    pub fn by(self, hook: Hook) -> Self {
        Self { hook, ..self }
    }

    /// What applications asked of their sockets.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns the cleanup for the case that this process is killed.
    #[must_use]
    pub fn remains(&self) -> Remains {
        let ids = |programs: [&OwnedFd; 2]| match self.hook {
            Hook::Tcx => Vec::new(),
            Hook::Clsact => {
                let ids = programs.map(|program| Program::id_from_fd(program.as_fd()));
                ids.into_iter().filter_map(Result::ok).collect()
            }
        };
        Remains {
            egress: ids([&self.ethernet.egress, &self.ip.egress]),
            ingress: ids([&self.ethernet.dsack, &self.ip.dsack]),
        }
    }

    /// The programs for devices whose packets begin so.
    pub(crate) fn at(&self, link_header: LinkHeader) -> &DevicePrograms {
        match link_header {
            LinkHeader::Ethernet => &self.ethernet,
            LinkHeader::Absent => &self.ip,
        }
    }
}
