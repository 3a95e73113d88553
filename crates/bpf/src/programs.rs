//! The loaded programs: load, reset (without a second verification), and cleanup after pillion was
//! killed.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType, Program, num_possible_cpus};
use nix::unistd::close;

use crate::loader::{Constants, DevicePrograms, UnloadedPrograms, duplicate_fd};
use crate::netns::ScopedNamespaces;
use crate::observation::ObservationReader;
use crate::policy::Tables;
use crate::quota::Quota;
use crate::{Error, Hook, LinkHeader, Namespaces, Policy, Requests, clsact, governor, link};

/// The bundler's programs, loaded and verified by the kernel, not attached yet.
#[derive(Debug)]
pub struct Programs {
    ethernet: DevicePrograms,
    ip: DevicePrograms,
    pub(crate) ingress: OwnedFd,
    pub(crate) transmit: OwnedFd,
    pub(crate) sockops: OwnedFd,
    pub(crate) review: OwnedFd,
    /// Configures a review, including its TCP options.
    pub(crate) reviewed: MapHandle,
    /// The program at setsockopt(2); `None` if the kernel does not support it.
    pub(crate) setsockopt: Option<OwnedFd>,
    pub(crate) getsockopt: Option<OwnedFd>,
    pub(crate) tables: Tables,
    pub(crate) scoped: ScopedNamespaces,
    pub(crate) quota: Quota,
    pub(crate) constants: Constants,
    /// The ids of the maps that start empty.
    pub(crate) resettable_maps: Vec<u32>,
    pub(crate) totals: MapHandle,
    pub(crate) flows: MapHandle,
    pub(crate) device_segments: MapHandle,
    pub(crate) requests: Requests,
    pub(crate) observations: Option<ObservationReader>,
    /// The governor's maps; `None` without a governor.
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
        Self::load_with_requests(policy, None)
    }

    /// As [`Programs::load`], but reuses the requests that another pillion has `left`, if their
    /// layout is equal.
    ///
    /// # Errors
    ///
    /// As [`Programs::load`].
    pub fn load_with_requests(policy: &Policy, left: Option<&Requests>) -> Result<Self, Error> {
        let constants = Constants::from_policy(policy);
        let mut storage = MaybeUninit::uninit();
        let mut unloaded = UnloadedPrograms::open(policy, &constants, &mut storage)?;
        let layout = unloaded.layout();
        let left = left.filter(|left| *left.layout() == layout);
        if let Some(left) = left {
            unloaded.reuse_requests(left)?;
        }
        let loaded = unloaded.load()?;
        let tables = loaded.tables()?;
        tables.store(policy)?;
        let (maps, programs) = (loaded.maps(), loaded.programs());
        let scoped = ScopedNamespaces::new(loaded.map(&maps.pillion_namespaces)?, &policy.scope)?;
        let quota = loaded.quota(policy.max_connections)?;
        if left.is_some() {
            quota.import(scoped.namespaces())?;
        }
        let is_observing = policy.observing.is_some();
        let observations = is_observing.then(|| loaded.observations(&quota));
        let [ethernet, ip] = loaded.device_programs()?;
        Ok(Self {
            ethernet,
            ip,
            ingress: duplicate_fd(&programs.pillion_ingress)?,
            transmit: duplicate_fd(&programs.pillion_transmit)?,
            sockops: duplicate_fd(&programs.pillion_sockops)?,
            review: duplicate_fd(&programs.pillion_review)?,
            reviewed: loaded.map(&maps.pillion_reviewed)?,
            setsockopt: loaded.socket_option_program(&programs.pillion_setsockopt)?,
            getsockopt: loaded.socket_option_program(&programs.pillion_getsockopt)?,
            tables,
            scoped,
            quota,
            constants,
            resettable_maps: loaded.resettable_maps()?,
            totals: loaded.map(&maps.pillion_totals)?,
            flows: loaded.map(&maps.pillion_flows)?,
            device_segments: loaded.map(&maps.pillion_device_segments)?,
            requests: Requests::new(duplicate_fd(&maps.pillion_requests)?, layout),
            observations: observations.transpose()?,
            governor: policy.governing.then(|| loaded.governor()).transpose()?,
            hook: Hook::of_this_kernel(),
        })
    }

    /// Sets the hook at devices, also if the kernel has a better one.
    #[must_use]
    pub fn with_hook(self, hook: Hook) -> Self {
        Self { hook, ..self }
    }

    /// The requests of applications for their sockets.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns the cleanup for the case that this process is killed.
    #[must_use]
    pub fn cleanup(&self) -> KillCleanup {
        let ids = |programs: [&OwnedFd; 2]| match self.hook {
            Hook::Tcx => Vec::new(),
            Hook::Clsact => {
                let ids = programs.map(|program| Program::id_from_fd(program.as_fd()));
                ids.into_iter().filter_map(Result::ok).collect()
            }
        };
        KillCleanup {
            egress: ids([&self.ethernet.egress, &self.ip.egress]),
            ingress: ids([&self.ethernet.dsack, &self.ip.dsack]),
        }
    }

    /// The programs for devices with this link header.
    pub(crate) fn for_link_header(&self, link_header: LinkHeader) -> &DevicePrograms {
        match link_header {
            LinkHeader::Ethernet => &self.ethernet,
            LinkHeader::Absent => &self.ip,
        }
    }
}

impl Programs {
    /// Resets used programs to the state after [`Programs::load`], without the verification that
    /// dominates the time to attach. Returns `false` if the policy requires other constants, or if
    /// state of a socket is still stored. Without storage iterators, only sockets that a process
    /// has open, or that are in the calling thread's network namespace, are checked.
    ///
    /// # Errors
    ///
    /// [`Error::System`] without the capability for maps by id, [`Error::TooManyRules`]: the
    /// programs are then unusable.
    pub fn reset(&mut self, policy: &Policy) -> Result<bool, Error> {
        let is_unchanged = self.constants == Constants::from_policy(policy);
        if !is_unchanged || !self.quota.is_empty(self.scoped.namespaces())? {
            return Ok(false);
        }
        for id in &self.resettable_maps {
            match MapHandle::from_map_id(*id) {
                // Maps of programs that this kernel does not need no longer exist.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                map => map.and_then(|map| clear_map(&map)).map_err(failed)?,
            }
        }
        self.tables.store(policy)?;
        self.scoped.reset(&policy.scope)?;
        self.quota.reset();
        if let Some(observations) = &mut self.observations {
            observations.reset();
        }
        Ok(true)
    }
}

/// Resets a map to its initial content.
fn clear_map(map: &MapHandle) -> libbpf_rs::Result<()> {
    let zeroes = vec![0; map.value_size() as usize];
    match map.map_type() {
        MapType::Array => {
            for slot in 0..map.max_entries() {
                map.update(&slot.to_ne_bytes(), &zeroes, MapFlags::ANY)?;
            }
        }
        MapType::PercpuArray => {
            let values = vec![zeroes; num_possible_cpus()?];
            for slot in 0..map.max_entries() {
                map.update_percpu(&slot.to_ne_bytes(), &values, MapFlags::ANY)?;
            }
        }
        _ => {
            let keys: Vec<_> = map.keys().collect();
            for key in keys {
                map.delete(&key)?;
            }
        }
    }
    Ok(())
}

fn failed(error: libbpf_rs::Error) -> Error {
    Error::system(
        "empty the programs' maps",
        io::Error::other(error.to_string()),
    )
}

/// Time that the reports of bundles in flight have to arrive: an RTT and the delay of an ACK.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(2);

/// Programs of a bundler that stay attached after the bundler was killed, as filters of clsact, by
/// their ids. Empty with tcx, whose links end with their last file descriptor.
#[derive(Debug)]
pub struct KillCleanup {
    pub(crate) egress: Vec<u32>,
    pub(crate) ingress: Vec<u32>,
}

impl KillCleanup {
    /// True if filters have to be removed, which requires capabilities.
    #[must_use]
    pub fn has_filters(&self) -> bool {
        !self.egress.is_empty()
    }

    /// Detaches all programs of the killed bundler. Those at egress are detached immediately, those
    /// at ingress, which hide reports from TCP, two seconds later, because reports of bundles in
    /// flight still arrive. The calling process must share the bundler's file descriptors; it
    /// closes all except the standard streams and `excepted`. Filters are removed in these network
    /// namespaces. Errors are ignored.
    pub fn run(&self, namespaces: &Namespaces, excepted: Option<BorrowedFd>) {
        let links = close_all_but_ingress(excepted);
        remove_filters(&self.egress, namespaces);
        thread::sleep(IN_FLIGHT_TIMEOUT);
        close_all(links);
        remove_filters(&self.ingress, namespaces);
    }
}

/// Closes all file descriptors except the standard streams, `excepted` and the links at ingress; returns
/// these links.
fn close_all_but_ingress(excepted: Option<BorrowedFd>) -> Vec<RawFd> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let excepted = excepted.map(|excepted| excepted.as_raw_fd());
    let (ingress, others): (Vec<RawFd>, _) = open
        .filter(|&fd| fd > libc::STDERR_FILENO && Some(fd) != excepted)
        // SAFETY: nothing is closed until all descriptors are listed.
        .partition(|&fd| link::is_at_ingress(unsafe { BorrowedFd::borrow_raw(fd) }));
    close_all(others);
    ingress
}

fn close_all(files: Vec<RawFd>) {
    for file in files {
        // The folder that listed the descriptors is closed already.
        let _ = close(file);
    }
}

fn remove_filters(programs: &[u32], namespaces: &Namespaces) {
    if !programs.is_empty() {
        let _ = clsact::remove_filters(programs, namespaces);
    }
}
