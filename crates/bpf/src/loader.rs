//! Loads the bundler's programs: sets their constants, leaves out those that the kernel lacks something
//! for, has the rest verified, and keeps their parts.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, MapMut, MapType, OpenObject, ProgramMut};
use libbpf_sys::{BPF_F_ANY_ALIGNMENT, BPF_F_RDONLY_PROG};

use crate::contract::{
    OpenPillionSkel, PillionMaps, PillionProgs, PillionSkel, PillionSkelBuilder, types,
};
use crate::host::interruption::without_signals;
use crate::host::libbpf::Messages;
use crate::observation::ObservationReader;
use crate::policy::Tables;
use crate::quota::{Kept, Places, RequestShares};
use crate::socket_iter::{self, Walk};
use crate::{Error, Observing, Policy, Requests, Scope, governor, requests};

/// Optional features of this kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// It goes through a map's own entries.
    pub(crate) over_storage: bool,
    /// Programs at setsockopt(2) can keep something with the socket.
    pub(crate) socket_option: bool,
}

/// The programs, not yet in the kernel.
pub(crate) struct Opened<'a> {
    skel: OpenPillionSkel<'a>,
    features: Features,
    log: Messages,
}

impl<'a> Opened<'a> {
    /// The programs as this policy and this kernel have them.
    pub(crate) fn by(
        policy: &Policy,
        constants: &Constants,
        storage: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Self, Error> {
        let log = Messages::keep();
        let skel = PillionSkelBuilder::default().open(storage);
        let mut opened = Self {
            skel: skel.map_err(|error| log.explain(&error))?,
            features: Features {
                over_storage: socket_iter::can_be_over_storage(),
                socket_option: can_answer_socket_options(),
            },
            log,
        };
        opened.set(policy, constants)?;
        opened.leave_out_what_the_kernel_lacks();
        opened.read_at_any_address();
        Ok(opened)
    }

    /// Sets what is decided before the kernel verifies them.
    fn set(&mut self, policy: &Policy, constants: &Constants) -> Result<(), Error> {
        let data = self.skel.maps.rodata_data.as_mut();
        constants.store(data.expect("the programs have read-only data"));
        // For both tables.
        let rule_cgroups = 2 * Policy::MAX_CGROUPS as u32;
        let maps = &mut self.skel.maps;
        let sized = maps.pillion_rule_cgroups.set_max_entries(rule_cgroups);
        sized.map_err(|error| self.log.explain(&error))?;
        if policy.governing {
            for map in [&mut maps.pillion_network_load, &mut maps.pillion_allowances] {
                let sized = map.set_max_entries(governor::MAX_NETWORKS);
                sized.map_err(|error| self.log.explain(&error))?;
            }
        }
        if policy.observing.is_some() {
            let sized = maps
                .pillion_observed
                .set_max_entries(policy.max_connections);
            sized.map_err(|error| self.log.explain(&error))?;
        }
        Ok(())
    }

    fn leave_out_what_the_kernel_lacks(&mut self) {
        let programs = &mut self.skel.progs;
        let Features {
            over_storage,
            socket_option,
        } = self.features;
        for (program, is_wanted) in [
            (&mut programs.pillion_kept_flows, over_storage),
            (&mut programs.pillion_kept_flows_by_tcp, !over_storage),
            (&mut programs.pillion_kept_flows_by_file, !over_storage),
            (&mut programs.pillion_count_requests, over_storage),
            (&mut programs.pillion_kept_requests_by_tcp, !over_storage),
            (&mut programs.pillion_kept_requests_by_file, !over_storage),
            (&mut programs.pillion_setsockopt, socket_option),
            (&mut programs.pillion_getsockopt, socket_option),
        ] {
            program.set_autoload(is_wanted);
        }
    }

    fn read_at_any_address(&mut self) {
        if cfg!(target_arch = "x86_64") {
            // The processor reads at any address, but kernels in user mode do not know that.
            let programs = self.skel.open_object_mut().progs_mut();
            programs.for_each(|mut program| program.set_flags(BPF_F_ANY_ALIGNMENT));
        }
    }

    /// The layout of the requests that these programs keep.
    pub(crate) fn layout(&self) -> String {
        requests::layout(self.skel.open_object())
    }

    /// Has the programs go on with requests of the same layout that another pillion has left.
    pub(crate) fn go_on_with(&mut self, left: &Requests) -> Result<(), Error> {
        let requests = &mut self.skel.maps.pillion_requests;
        let taken = requests.reuse_fd(left.map());
        Ok(taken.map_err(|error| self.log.explain(&error))?)
    }

    /// Has the kernel verify them.
    pub(crate) fn load(self) -> Result<Loaded<'a>, Error> {
        let Self {
            skel,
            features,
            log,
        } = self;
        let skel = without_signals(|| skel.load()).map_err(|error| log.explain(&error))?;
        Ok(Loaded {
            skel,
            features,
            log,
        })
    }
}

/// The programs that stand at a device.
#[derive(Debug)]
pub(crate) struct DevicePrograms {
    pub(crate) egress: OwnedFd,
    pub(crate) dsack: OwnedFd,
}

/// The programs, verified by the kernel.
pub(crate) struct Loaded<'a> {
    skel: PillionSkel<'a>,
    features: Features,
    log: Messages,
}

impl<'a> Loaded<'a> {
    pub(crate) fn maps(&self) -> &PillionMaps<'a> {
        &self.skel.maps
    }

    pub(crate) fn programs(&self) -> &PillionProgs<'a> {
        &self.skel.progs
    }

    /// A map, kept longer than the programs' object is.
    pub(crate) fn map(&self, map: &MapMut) -> Result<MapHandle, Error> {
        Ok(MapHandle::try_from(map).map_err(|error| self.log.explain(&error))?)
    }

    /// The rules' tables.
    pub(crate) fn tables(&self) -> Result<Tables, Error> {
        let maps = self.maps();
        Ok(Tables {
            rules: self.map(&maps.pillion_rules)?,
            cgroups: self.map(&maps.pillion_rule_cgroups)?,
            in_force: self.map(&maps.pillion_in_force)?,
        })
    }

    /// The ids of the maps that are empty before the programs are at work: all but the constants, and
    /// what is kept with sockets.
    pub(crate) fn emptied(&self) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        for map in self.skel.object().maps() {
            let info = map.info().map_err(|error| self.log.explain(&error))?.info;
            let is_constant = info.map_flags & BPF_F_RDONLY_PROG != 0;
            if !is_constant && map.map_type() != MapType::SkStorage {
                ids.push(info.id);
            }
        }
        Ok(ids)
    }

    /// The account of the places, of which there are at most so many.
    pub(crate) fn places(&self, most: u32) -> Result<Places, Error> {
        let (maps, programs) = (self.maps(), self.programs());
        let connections = [
            &programs.pillion_kept_flows,
            &programs.pillion_kept_flows_by_tcp,
            &programs.pillion_kept_flows_by_file,
        ];
        let by_tcp = &programs.pillion_kept_requests_by_tcp;
        let by_file = &programs.pillion_kept_requests_by_file;
        let requests = match self.features.over_storage {
            true => RequestShares::counted(
                programs.pillion_count_requests.as_fd(),
                maps.pillion_requests.as_fd(),
                self.map(&maps.pillion_there)?,
            )?,
            false => {
                let walk = Walk::over_sockets(by_tcp.as_fd(), by_file.as_fd());
                RequestShares::Told(walk.map(Kept::by).map_err(no_walk)?)
            }
        };
        Ok(Places::new(
            self.map(&maps.pillion_come)?,
            self.map(&maps.pillion_gone)?,
            self.kept(&maps.pillion_flows, connections)?,
            requests,
            most,
        ))
    }

    /// What goes through the sockets that a map keeps something for, by the program for that which
    /// this kernel has.
    fn kept(
        &self,
        map: &MapMut,
        [storage, by_tcp, by_file]: [&ProgramMut; 3],
    ) -> Result<Kept, Error> {
        let walk = match self.features.over_storage {
            true => Walk::over_storage(storage.as_fd(), map.as_fd()),
            false => Walk::over_sockets(by_tcp.as_fd(), by_file.as_fd()),
        };
        walk.map(Kept::by).map_err(no_walk)
    }

    /// What reads the observations of the connections that have a place.
    pub(crate) fn observations(&self, places: &Places) -> Result<ObservationReader, Error> {
        let connections = places.connections();
        let connections = connections.map_err(|error| Error::system("keep a program", error))?;
        let seen = self.map(&self.maps().pillion_observed)?;
        Ok(ObservationReader::new(seen, connections))
    }

    /// The maps by which a governor measures and decides.
    pub(crate) fn governor(&self) -> Result<governor::Maps, Error> {
        let maps = self.maps();
        Ok(governor::Maps {
            loads: self.map(&maps.pillion_network_load)?,
            allowances: self.map(&maps.pillion_allowances)?,
            governor: self.map(&maps.pillion_governor)?,
        })
    }

    /// The programs for devices whose packets begin with an Ethernet header, and for those whose
    /// packets have none.
    pub(crate) fn at_devices(&self) -> Result<[DevicePrograms; 2], Error> {
        let programs = self.programs();
        let pair = |egress, dsack| {
            Ok::<_, Error>(DevicePrograms {
                egress: own(egress)?,
                dsack: own(dsack)?,
            })
        };
        Ok([
            pair(&programs.pillion_egress, &programs.pillion_dsack)?,
            pair(&programs.pillion_egress_ip, &programs.pillion_dsack_ip)?,
        ])
    }

    /// A program that applications call by a socket option; `None` where the kernel lacks what it
    /// needs.
    pub(crate) fn at_socket_option(&self, program: &ProgramMut) -> Result<Option<OwnedFd>, Error> {
        let is_there = self.features.socket_option;
        is_there.then(|| own(program)).transpose()
    }
}

/// A program or a map, kept longer than the programs' object is.
pub(crate) fn own(of_the_object: &impl AsFd) -> Result<OwnedFd, Error> {
    let kept = of_the_object.as_fd().try_clone_to_owned();
    kept.map_err(|error| Error::system("keep a program", error))
}

fn no_walk(error: io::Error) -> Error {
    Error::system("go through the connections", error)
}

/// What the programs are told before the kernel verifies them, and cannot be told otherwise later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constants {
    /// True if connections of a cgroup are covered in every network namespace.
    pub(crate) any_namespace: bool,
    max_connections: u32,
    receivers_are_safe: bool,
    governing: bool,
    observing: Option<Observing>,
}

impl Constants {
    /// As this policy and the calling thread's network namespace have them.
    pub(crate) fn of(policy: &Policy) -> Self {
        Self {
            any_namespace: policy.scope == Scope::Anywhere,
            max_connections: policy.max_connections,
            receivers_are_safe: clamps_the_scaling_ratio(),
            governing: policy.governing,
            observing: policy.observing,
        }
    }

    /// Writes them where the programs have them.
    pub(crate) fn store(&self, data: &mut types::rodata) {
        data.any_namespace = self.any_namespace;
        data.max_connections = self.max_connections;
        data.receivers_are_safe = self.receivers_are_safe;
        data.governing = self.governing;
        if let Some(observing) = &self.observing {
            data.observing = true;
            data.draw_key = observing.key;
            data.draw_bundled = observing.bundled_of_2_32();
            data.draw_by = observing.draw_by.raw();
            data.grace_us = observing.grace_us;
            data.stall_us = observing.stall_us;
        }
    }
}

/// Does this kernel keep a receiver's window sane whatever a program adds to its packets? The
/// lab kernel does, and says so; docs/bundling.md has what happens elsewhere.
fn clamps_the_scaling_ratio() -> bool {
    fs::read("/proc/sys/net/ipv4/tcp_clamp_scaling_ratio").is_ok_and(|value| value == b"1\n")
}

/// True if the kernel lets programs at setsockopt(2) choose the error that the application gets
/// (Linux 5.18, commit b44123b4a3dc). Without that there is no switch, and all else works.
fn can_answer_socket_options() -> bool {
    // SAFETY: a plain call; no options are given.
    let found = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCKOPT,
            libbpf_sys::BPF_FUNC_set_retval,
            ptr::null(),
        )
    };
    found == 1
}
