//! Loads the bundler's programs: sets their constants, disables unsupported ones, and stores their
//! parts.

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
use crate::host::libbpf::LibbpfLog;
use crate::observation::ObservationReader;
use crate::policy::Tables;
use crate::quota::{Quota, RequestShares, SocketEntries};
use crate::socket_iter::{self, SocketIter};
use crate::{Error, Observing, Policy, Requests, Scope, governor, requests};

/// Optional features of this kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// The iterator `bpf_sk_storage_map` is permitted.
    pub(crate) storage_iterator: bool,
    /// Programs at setsockopt(2) can use socket storage.
    pub(crate) socket_option: bool,
}

/// The programs, not yet in the kernel.
pub(crate) struct UnloadedPrograms<'a> {
    skel: OpenPillionSkel<'a>,
    features: Features,
    log: LibbpfLog,
}

impl<'a> UnloadedPrograms<'a> {
    /// Opens the programs for this policy and this kernel.
    pub(crate) fn open(
        policy: &Policy,
        constants: &Constants,
        storage: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Self, Error> {
        let log = LibbpfLog::capture();
        let skel = PillionSkelBuilder::default().open(storage);
        let mut opened = Self {
            skel: skel.map_err(|error| log.to_error(&error))?,
            features: Features {
                storage_iterator: socket_iter::is_storage_iterator_supported(),
                socket_option: can_answer_socket_options(),
            },
            log,
        };
        opened.set(policy, constants)?;
        opened.disable_unsupported();
        opened.allow_unaligned_reads();
        Ok(opened)
    }

    /// Sets constants and map sizes before the kernel verifies the programs.
    fn set(&mut self, policy: &Policy, constants: &Constants) -> Result<(), Error> {
        let data = self.skel.maps.rodata_data.as_mut();
        constants.store(data.expect("the programs have read-only data"));
        // For both tables.
        let rule_cgroups = 2 * Policy::MAX_CGROUPS as u32;
        let maps = &mut self.skel.maps;
        let sized = maps.pillion_rule_cgroups.set_max_entries(rule_cgroups);
        sized.map_err(|error| self.log.to_error(&error))?;
        if policy.governing {
            for map in [&mut maps.pillion_network_load, &mut maps.pillion_allowances] {
                let sized = map.set_max_entries(governor::MAX_NETWORKS);
                sized.map_err(|error| self.log.to_error(&error))?;
            }
        }
        if policy.observing.is_some() {
            let sized = maps
                .pillion_observed
                .set_max_entries(policy.max_connections);
            sized.map_err(|error| self.log.to_error(&error))?;
        }
        Ok(())
    }

    fn disable_unsupported(&mut self) {
        let programs = &mut self.skel.progs;
        let Features {
            storage_iterator,
            socket_option,
        } = self.features;
        for (program, is_enabled) in [
            (&mut programs.pillion_flow_sockets, storage_iterator),
            (&mut programs.pillion_flow_sockets_by_tcp, !storage_iterator),
            (
                &mut programs.pillion_flow_sockets_by_file,
                !storage_iterator,
            ),
            (&mut programs.pillion_count_requests, storage_iterator),
            (
                &mut programs.pillion_request_sockets_by_tcp,
                !storage_iterator,
            ),
            (
                &mut programs.pillion_request_sockets_by_file,
                !storage_iterator,
            ),
            (&mut programs.pillion_setsockopt, socket_option),
            (&mut programs.pillion_getsockopt, socket_option),
        ] {
            program.set_autoload(is_enabled);
        }
    }

    fn allow_unaligned_reads(&mut self) {
        if cfg!(target_arch = "x86_64") {
            // x86 supports unaligned reads, but user-mode Linux does not report so.
            let programs = self.skel.open_object_mut().progs_mut();
            programs.for_each(|mut program| program.set_flags(BPF_F_ANY_ALIGNMENT));
        }
    }

    /// The layout of the programs' requests.
    pub(crate) fn layout(&self) -> String {
        requests::layout(self.skel.open_object())
    }

    /// Reuses the requests of another pillion with the same layout.
    pub(crate) fn reuse_requests(&mut self, left: &Requests) -> Result<(), Error> {
        let requests = &mut self.skel.maps.pillion_requests;
        let reused = requests.reuse_fd(left.map());
        Ok(reused.map_err(|error| self.log.to_error(&error))?)
    }

    /// Loads the programs into the kernel, which verifies them.
    pub(crate) fn load(self) -> Result<LoadedPrograms<'a>, Error> {
        let Self {
            skel,
            features,
            log,
        } = self;
        let skel = without_signals(|| skel.load()).map_err(|error| log.to_error(&error))?;
        Ok(LoadedPrograms {
            skel,
            features,
            log,
        })
    }
}

/// The programs of one device.
#[derive(Debug)]
pub(crate) struct DevicePrograms {
    pub(crate) egress: OwnedFd,
    pub(crate) dsack: OwnedFd,
}

/// The programs, verified by the kernel.
pub(crate) struct LoadedPrograms<'a> {
    skel: PillionSkel<'a>,
    features: Features,
    log: LibbpfLog,
}

impl<'a> LoadedPrograms<'a> {
    pub(crate) fn maps(&self) -> &PillionMaps<'a> {
        &self.skel.maps
    }

    pub(crate) fn programs(&self) -> &PillionProgs<'a> {
        &self.skel.progs
    }

    /// A handle of a map that outlives the programs' object.
    pub(crate) fn map(&self, map: &MapMut) -> Result<MapHandle, Error> {
        Ok(MapHandle::try_from(map).map_err(|error| self.log.to_error(&error))?)
    }

    /// The rules' tables.
    pub(crate) fn tables(&self) -> Result<Tables, Error> {
        let maps = self.maps();
        Ok(Tables {
            rules: self.map(&maps.pillion_rules)?,
            cgroups: self.map(&maps.pillion_rule_cgroups)?,
            active_table: self.map(&maps.pillion_active_table)?,
            caps: self.map(&maps.pillion_caps)?,
        })
    }

    /// The ids of the maps that start empty: all except constants and socket storage.
    pub(crate) fn resettable_maps(&self) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        for map in self.skel.object().maps() {
            let info = map.info().map_err(|error| self.log.to_error(&error))?.info;
            let is_constant = info.map_flags & BPF_F_RDONLY_PROG != 0;
            if !is_constant && map.map_type() != MapType::SkStorage {
                ids.push(info.id);
            }
        }
        Ok(ids)
    }

    /// The quota of connection slots.
    pub(crate) fn quota(&self, max_connections: u32) -> Result<Quota, Error> {
        let (maps, programs) = (self.maps(), self.programs());
        let connections = [
            &programs.pillion_flow_sockets,
            &programs.pillion_flow_sockets_by_tcp,
            &programs.pillion_flow_sockets_by_file,
        ];
        let by_tcp = &programs.pillion_request_sockets_by_tcp;
        let by_file = &programs.pillion_request_sockets_by_file;
        let requests = match self.features.storage_iterator {
            true => RequestShares::counted(
                programs.pillion_count_requests.as_fd(),
                maps.pillion_requests.as_fd(),
                self.map(&maps.pillion_present)?,
            )?,
            false => {
                let iterator = SocketIter::sockets(by_tcp.as_fd(), by_file.as_fd());
                RequestShares::Listed(iterator.map(SocketEntries::new).map_err(iterator_error)?)
            }
        };
        Ok(Quota::new(
            self.map(&maps.pillion_taken)?,
            self.map(&maps.pillion_freed)?,
            self.socket_entries(&maps.pillion_flows, connections)?,
            requests,
            max_connections,
        ))
    }

    /// An iterator over the sockets in a map, by the program that this kernel supports.
    fn socket_entries(
        &self,
        map: &MapMut,
        [storage, by_tcp, by_file]: [&ProgramMut; 3],
    ) -> Result<SocketEntries, Error> {
        let iterator = match self.features.storage_iterator {
            true => SocketIter::storage(storage.as_fd(), map.as_fd()),
            false => SocketIter::sockets(by_tcp.as_fd(), by_file.as_fd()),
        };
        iterator.map(SocketEntries::new).map_err(iterator_error)
    }

    /// The reader of the observations.
    pub(crate) fn observations(&self, quota: &Quota) -> Result<ObservationReader, Error> {
        let connections = quota.connections();
        let connections = connections.map_err(|error| Error::system("keep a program", error))?;
        let observations = self.map(&self.maps().pillion_observed)?;
        Ok(ObservationReader::new(observations, connections))
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

    /// The programs for devices with an Ethernet header, and for devices without link header.
    pub(crate) fn device_programs(&self) -> Result<[DevicePrograms; 2], Error> {
        let programs = self.programs();
        let pair = |egress, dsack| {
            Ok::<_, Error>(DevicePrograms {
                egress: duplicate_fd(egress)?,
                dsack: duplicate_fd(dsack)?,
            })
        };
        Ok([
            pair(&programs.pillion_egress, &programs.pillion_dsack)?,
            pair(&programs.pillion_egress_ip, &programs.pillion_dsack_ip)?,
        ])
    }

    /// A program for a socket option; `None` if the kernel does not support it.
    pub(crate) fn socket_option_program(
        &self,
        program: &ProgramMut,
    ) -> Result<Option<OwnedFd>, Error> {
        let is_supported = self.features.socket_option;
        is_supported.then(|| duplicate_fd(program)).transpose()
    }
}

/// A descriptor of a program or a map that outlives the programs' object.
pub(crate) fn duplicate_fd(object: &impl AsFd) -> Result<OwnedFd, Error> {
    let duplicate = object.as_fd().try_clone_to_owned();
    duplicate.map_err(|error| Error::system("keep a program", error))
}

fn iterator_error(error: io::Error) -> Error {
    Error::system("go through the connections", error)
}

/// The constants of the programs, which cannot change after loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constants {
    /// True if connections of a cgroup are covered in every network namespace.
    pub(crate) any_namespace: bool,
    max_connections: u32,
    receivers_are_safe: bool,
    governing: bool,
    capped: bool,
    observing: Option<Observing>,
}

impl Constants {
    /// The constants for this policy and this kernel.
    pub(crate) fn from_policy(policy: &Policy) -> Self {
        Self {
            any_namespace: policy.scope == Scope::Anywhere,
            max_connections: policy.max_connections,
            receivers_are_safe: clamps_scaling_ratio(),
            governing: policy.governing,
            capped: policy.redundancy_caps.is_some(),
            observing: policy.observing,
        }
    }

    /// Writes the constants to the programs' read-only data.
    pub(crate) fn store(&self, data: &mut types::rodata) {
        data.any_namespace = self.any_namespace;
        data.max_connections = self.max_connections;
        data.receivers_are_safe = self.receivers_are_safe;
        data.governing = self.governing;
        data.capped = self.capped;
        if let Some(observing) = &self.observing {
            data.observing = true;
            data.holding_back = observing.bundled_ppm.is_none();
            data.assignment_key = observing.key;
            data.bundled_threshold = observing.bundled_of_2_32();
            data.assign_by = observing.assign_by.raw();
            data.grace_us = observing.grace_us;
            data.stall_us = observing.stall_us;
        }
    }
}

/// True if this kernel limits the scaling ratio of receivers. The lab kernel does, and reports so;
/// docs/reference/bundling.md describes other kernels.
fn clamps_scaling_ratio() -> bool {
    fs::read("/proc/sys/net/ipv4/tcp_clamp_scaling_ratio").is_ok_and(|value| value == b"1\n")
}

/// True if programs at setsockopt(2) can choose the application's error (Linux 5.18, commit
/// b44123b4a3dc). Otherwise only the socket options are missing.
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
