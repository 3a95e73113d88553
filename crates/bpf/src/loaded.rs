//! The programs as the kernel has them, to be kept by their parts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::host::libbpf::Messages;
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapHandle, MapMut, MapType, ProgramMut};
use libbpf_sys::BPF_F_RDONLY_PROG;

use crate::contract::{PillionMaps, PillionProgs, PillionSkel};
use crate::observation::ObservationReader;
use crate::opened::Features;
use crate::places::{Kept, Places};
use crate::policy::Tables;
use crate::programs::DevicePrograms;
use crate::request_shares::RequestShares;
use crate::walk::Walk;
use crate::{Error, governor};

/// The programs, verified by the kernel.
pub(crate) struct Loaded<'a> {
    skel: PillionSkel<'a>,
    features: Features,
    log: Messages,
}

impl<'a> Loaded<'a> {
    pub(crate) fn new(skel: PillionSkel<'a>, features: Features, log: Messages) -> Self {
        Self {
            skel,
            features,
            log,
        }
    }

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
