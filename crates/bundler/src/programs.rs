use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, Program, ProgramMut};
use libbpf_sys::BPF_F_ANY_ALIGNMENT;
use pillion_host::libbpf::Messages;

use crate::contract::PillionSkelBuilder;
use crate::observation::ObservationReader;
use crate::places::{Kept, Places};
use crate::policy::Tables;
use crate::scope::Served;
use crate::walk::{self, Walk};
use crate::{Error, Hook, LinkHeader, Policy, Requests, Scope, requests, socket_option};

/// The bundler's programs, loaded and verified by the kernel, not yet at work.
#[derive(Debug)]
pub struct Programs {
    ethernet: DevicePrograms,
    ip: DevicePrograms,
    pub(crate) ingress: OwnedFd,
    pub(crate) transmit: OwnedFd,
    pub(crate) sockops: OwnedFd,
    pub(crate) review: OwnedFd,
    /// The program at setsockopt(2); `None` where the kernel lacks what it needs.
    pub(crate) setsockopt: Option<OwnedFd>,
    pub(crate) getsockopt: Option<OwnedFd>,
    pub(crate) tables: Tables,
    pub(crate) served: Served,
    pub(crate) places: Places,
    /// True if connections of a cgroup are covered in every network namespace.
    pub(crate) any_namespace: bool,
    pub(crate) totals: MapHandle,
    pub(crate) flows: MapHandle,
    pub(crate) requests: Requests,
    pub(crate) observations: Option<ObservationReader>,
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
        let log = Messages::keep();
        let mut storage = MaybeUninit::uninit();
        let mut open = PillionSkelBuilder::default()
            .open(&mut storage)
            .map_err(|error| log.explain(&error))?;
        let rodata = open
            .maps
            .rodata_data
            .as_mut()
            .expect("the programs have read-only data");
        rodata.any_namespace = policy.scope == Scope::Anywhere;
        rodata.max_connections = policy.max_connections;
        rodata.receivers_are_safe = clamps_the_scaling_ratio();
        // For both tables.
        open.maps
            .pillion_rule_cgroups
            .set_max_entries(2 * Policy::MAX_CGROUPS as u32)
            .map_err(|error| log.explain(&error))?;
        if let Some(observing) = &policy.observing {
            rodata.observing = true;
            rodata.draw_key = observing.key;
            rodata.draw_bundled = observing.bundled_of_2_32();
            rodata.draw_by = observing.draw_by.raw();
            rodata.grace_us = observing.grace_us;
            rodata.stall_us = observing.stall_us;
            open.maps
                .pillion_observed
                .set_max_entries(policy.max_connections)
                .map_err(|error| log.explain(&error))?;
        }
        let layout = requests::layout(open.open_object());
        let left = left.filter(|left| *left.layout() == layout);
        if let Some(left) = left {
            let requests = &mut open.maps.pillion_requests;
            let taken = requests.reuse_fd(left.map());
            taken.map_err(|error| log.explain(&error))?;
        }
        let over_storage = walk::can_be_over_storage();
        for (program, is_wanted) in [
            (&mut open.progs.pillion_kept_flows, over_storage),
            (&mut open.progs.pillion_kept_flows_by_tcp, !over_storage),
            (&mut open.progs.pillion_kept_flows_by_file, !over_storage),
            (&mut open.progs.pillion_kept_requests, over_storage),
            (&mut open.progs.pillion_kept_requests_by_tcp, !over_storage),
            (&mut open.progs.pillion_kept_requests_by_file, !over_storage),
        ] {
            program.set_autoload(is_wanted);
        }
        let has_socket_option = socket_option::is_supported();
        open.progs
            .pillion_setsockopt
            .set_autoload(has_socket_option);
        open.progs
            .pillion_getsockopt
            .set_autoload(has_socket_option);
        if cfg!(target_arch = "x86_64") {
            // The processor reads at any address, but kernels in user mode do not know that.
            let programs = open.open_object_mut().progs_mut();
            programs.for_each(|mut program| program.set_flags(BPF_F_ANY_ALIGNMENT));
        }
        let skel = open.load().map_err(|error| log.explain(&error))?;
        let map = |map| MapHandle::try_from(map).map_err(|error| log.explain(&error));
        let tables = Tables {
            rules: map(&skel.maps.pillion_rules)?,
            cgroups: map(&skel.maps.pillion_rule_cgroups)?,
            in_force: map(&skel.maps.pillion_in_force)?,
        };
        tables.store(policy)?;
        let served = Served::new(map(&skel.maps.pillion_namespaces)?, &policy.scope)?;
        let own = |fd: std::os::fd::BorrowedFd| {
            fd.try_clone_to_owned()
                .map_err(|error| Error::system("keep a program", error))
        };
        let flows = map(&skel.maps.pillion_flows)?;
        let kept = |map: &MapHandle, [storage, by_tcp, by_file]: [&ProgramMut; 3]| {
            let walk = match over_storage {
                true => Walk::over_storage(storage.as_fd(), map.as_fd()),
                false => Walk::over_sockets(by_tcp.as_fd(), by_file.as_fd()),
            };
            let walk = walk.map_err(|error| Error::system("go through the connections", error));
            walk.map(Kept::by)
        };
        let connections = [
            &skel.progs.pillion_kept_flows,
            &skel.progs.pillion_kept_flows_by_tcp,
            &skel.progs.pillion_kept_flows_by_file,
        ];
        let requests = [
            &skel.progs.pillion_kept_requests,
            &skel.progs.pillion_kept_requests_by_tcp,
            &skel.progs.pillion_kept_requests_by_file,
        ];
        let kept = [
            kept(&flows, connections)?,
            kept(&map(&skel.maps.pillion_requests)?, requests)?,
        ];
        let observations = policy.observing.as_ref().map(|_| {
            let connections = kept[0].try_clone();
            let connections =
                connections.map_err(|error| Error::system("keep a program", error))?;
            let seen = map(&skel.maps.pillion_observed)?;
            Ok::<_, Error>(ObservationReader::new(seen, connections))
        });
        let come = map(&skel.maps.pillion_come)?;
        let gone = map(&skel.maps.pillion_gone)?;
        let places = Places::new(come, gone, kept, policy.max_connections);
        if left.is_some() {
            places.take_over(served.namespaces())?;
        }
        Ok(Self {
            ethernet: DevicePrograms {
                egress: own(skel.progs.pillion_egress.as_fd())?,
                dsack: own(skel.progs.pillion_dsack.as_fd())?,
            },
            ip: DevicePrograms {
                egress: own(skel.progs.pillion_egress_ip.as_fd())?,
                dsack: own(skel.progs.pillion_dsack_ip.as_fd())?,
            },
            ingress: own(skel.progs.pillion_ingress.as_fd())?,
            transmit: own(skel.progs.pillion_transmit.as_fd())?,
            sockops: own(skel.progs.pillion_sockops.as_fd())?,
            review: own(skel.progs.pillion_review.as_fd())?,
            setsockopt: has_socket_option
                .then(|| own(skel.progs.pillion_setsockopt.as_fd()))
                .transpose()?,
            getsockopt: has_socket_option
                .then(|| own(skel.progs.pillion_getsockopt.as_fd()))
                .transpose()?,
            tables,
            served,
            places,
            any_namespace: policy.scope == Scope::Anywhere,
            totals: map(&skel.maps.pillion_totals)?,
            flows,
            requests: Requests::left(own(skel.maps.pillion_requests.as_fd())?, layout),
            observations: observations.transpose()?,
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

    /// The ids of the programs that [`remove_filters`](crate::remove_filters) is to be told if this
    /// process is killed; empty if nothing would stay behind.
    #[must_use]
    pub fn left_behind(&self) -> Vec<u32> {
        if self.hook == Hook::Tcx {
            return Vec::new();
        }
        [&self.ethernet, &self.ip]
            .iter()
            .flat_map(|at| [&at.egress, &at.dsack])
            .filter_map(|program| Program::id_from_fd(program.as_fd()).ok())
            .collect()
    }

    /// The programs for devices whose packets begin so.
    pub(crate) fn at(&self, link_header: LinkHeader) -> &DevicePrograms {
        match link_header {
            LinkHeader::Ethernet => &self.ethernet,
            LinkHeader::Absent => &self.ip,
        }
    }
}

/// Does this kernel keep a receiver's window sane whatever a program adds to its packets? The
/// lab kernel does, and says so; docs/bundling.md has what happens elsewhere.
fn clamps_the_scaling_ratio() -> bool {
    fs::read("/proc/sys/net/ipv4/tcp_clamp_scaling_ratio").is_ok_and(|value| value == b"1\n")
}

/// The programs that stand at a device.
#[derive(Debug)]
pub(crate) struct DevicePrograms {
    pub(crate) egress: OwnedFd,
    pub(crate) dsack: OwnedFd,
}
