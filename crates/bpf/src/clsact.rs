//! The way into a device's path from before Linux 6.6: filters of a clsact discipline, which
//! may be others' as well. Unlike links, filters do not end with the process.

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{Device, Error, Hook, Namespace, Namespaces, netlink};

const INGRESS: libbpf_sys::bpf_tc_attach_point = libbpf_sys::BPF_TC_INGRESS;
const EGRESS: libbpf_sys::bpf_tc_attach_point = libbpf_sys::BPF_TC_EGRESS;

/// Priorities of pillion's filters, after those that the kernel assigns by itself.
const PRIORITIES: RangeInclusive<u32> = 0xff00..=0xffff;

/// Handles that mark a discipline as created by pillion: the last pillion to leave it, or the
/// cleanup helper, removes it. ("pill" in ASCII and a number.)
const OWNED_HANDLES: RangeInclusive<u32> = 0x7069_6c00..=0x7069_6cff;

/// pillion's filters at one device; dropping it removes them.
#[derive(Debug)]
pub(crate) struct Clsact {
    namespace: Namespace,
    filters: Filters,
}

/// pillion's filters at one device, seen from inside the device's network namespace.
#[derive(Debug)]
struct Filters {
    device: u32,
    /// The queueing discipline clsact was made by a pillion.
    owns_qdisc: bool,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, Copy)]
struct Filter {
    point: libbpf_sys::bpf_tc_attach_point,
    filter: netlink::Filter,
}

impl Clsact {
    pub(crate) fn attach(
        device: &Device,
        dsack: BorrowedFd,
        egress: BorrowedFd,
    ) -> Result<Self, Error> {
        let attach = || Filters::attach(device.index, dsack, egress);
        match device.namespace.enter(attach)? {
            Ok(filters) => Ok(Self {
                namespace: device.namespace.clone(),
                filters,
            }),
            Err(AttachError::Ingress) => Err(Error::IngressTaken {
                device: device.to_string(),
            }),
            Err(AttachError::System(error)) => Err(Error::at_device(device, Hook::Clsact, error)),
        }
    }

    /// Removes the filter at egress.
    pub(crate) fn stop_bundling(&mut self) {
        let filters = &mut self.filters;
        // A failure means that the device is gone.
        let _ = self.namespace.enter(|| filters.stop_bundling());
    }

    /// False if a filter was removed, by another program or with its device.
    pub(crate) fn is_attached(&self) -> bool {
        let is_attached = || self.filters.is_attached();
        self.namespace.enter(is_attached).unwrap_or(false)
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        // A failure means that the device is gone.
        let _ = self.namespace.enter(|| self.filters.remove());
    }
}

/// Why filters are not attached.
enum AttachError {
    /// The discipline `ingress` replaces clsact, without an egress hook.
    Ingress,
    System(io::Error),
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Filters {
    fn attach(device: u32, dsack: BorrowedFd, egress: BorrowedFd) -> Result<Self, AttachError> {
        /// Tries to attach: who heeds no turn may remove the discipline before our filters are in
        /// it.
        const ATTEMPTS: u32 = 5;
        let _lock = ClsactLock::acquire();
        let mut attempt = 1;
        loop {
            let attached = Self::attach_locked(device, dsack, egress);
            let again = match &attached {
                Ok(attached) => !attached.is_attached(),
                Err(AttachError::System(error)) => error.raw_os_error() != Some(libc::ENODEV),
                Err(AttachError::Ingress) => false,
            };
            if !again || attempt == ATTEMPTS {
                return attached;
            }
            attempt += 1;
        }
    }

    fn attach_locked(
        device: u32,
        dsack: BorrowedFd,
        egress: BorrowedFd,
    ) -> Result<Self, AttachError> {
        let mut both = hook(device, INGRESS | EGRESS);
        // SAFETY: a call with a description of its own, which it only reads.
        let owns_qdisc = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut both) } {
            result if result == -libc::EEXIST => {
                let qdiscs = netlink::list_qdiscs(Some(device))?;
                if qdiscs.iter().any(|qdisc| qdisc.kind == "ingress") {
                    return Err(AttachError::Ingress);
                }
                is_owned_qdisc(device)
            }
            result => succeeded(result).map(|()| true)?,
        };
        let mut attached = Self {
            device,
            owns_qdisc,
            filters: Vec::with_capacity(2),
        };
        for (point, program) in [(INGRESS, dsack), (EGRESS, egress)] {
            match Filter::attach(device, point, program, owns_qdisc) {
                Ok(filter) => attached.filters.push(filter),
                Err(error) => {
                    attached.remove_locked();
                    return Err(error.into());
                }
            }
        }
        Ok(attached)
    }

    fn is_attached(&self) -> bool {
        self.filters
            .iter()
            .all(|filter| filter.is_attached(self.device))
    }

    fn stop_bundling(&mut self) {
        let _lock = ClsactLock::acquire();
        let device = self.device;
        let egress = self.filters.extract_if(.., |it| it.point == EGRESS);
        for filter in egress.filter(|it| it.is_attached(device)) {
            let _ = filter.remove(device);
        }
    }

    fn remove(&self) {
        let _lock = ClsactLock::acquire();
        self.remove_locked();
    }

    fn remove_locked(&self) {
        let attached = self.filters.iter().filter(|it| it.is_attached(self.device));
        let removed = attached.filter(|it| it.remove(self.device).is_ok()).count();
        // If none was there, the discipline is another one by now.
        if self.owns_qdisc && (removed > 0 || self.filters.is_empty()) {
            remove_if_unused(self.device);
        }
    }
}

impl Filter {
    fn attach(
        device: u32,
        point: libbpf_sys::bpf_tc_attach_point,
        program: BorrowedFd,
        owns_qdisc: bool,
    ) -> io::Result<Self> {
        let existing = filters(device, point)?;
        let priority = next_priority(&existing);
        let is_free = |handle: &u32| {
            let is_used = |it: &netlink::Filter| (it.handle, it.priority) == (*handle, priority);
            !existing.iter().any(is_used)
        };
        let marked = owns_qdisc
            .then(|| OWNED_HANDLES.clone().find(is_free))
            .flatten();
        // With no handle, the kernel gives one.
        let mut options = options(marked.unwrap_or_default(), priority);
        options.prog_fd = program.as_raw_fd();
        // SAFETY: both live across the call.
        succeeded(unsafe { libbpf_sys::bpf_tc_attach(&hook(device, point), &raw mut options) })?;
        let filter = netlink::Filter {
            handle: options.handle,
            priority: options.priority,
            program: Some(options.prog_id),
        };
        Ok(Self { point, filter })
    }

    /// False if the filter was removed; another one may have its handle.
    fn is_attached(&self, device: u32) -> bool {
        filters(device, self.point).is_ok_and(|existing| existing.contains(&self.filter))
    }

    fn remove(&self, device: u32) -> io::Result<()> {
        let options = options(self.filter.handle, self.filter.priority);
        // SAFETY: both live across the call.
        succeeded(unsafe {
            libbpf_sys::bpf_tc_detach(&hook(device, self.point), &raw const options)
        })
    }
}

/// Removes all filters with one of these programs from the devices of these network namespaces,
/// where the process that attached them could not do so.
///
/// # Errors
/// [`Error::System`] if the devices cannot be listed.
pub(crate) fn remove_filters(programs: &[u32], namespaces: &Namespaces) -> Result<(), Error> {
    let own = namespaces.named.is_empty().then(Namespace::default);
    // The filters of a removed namespace are gone. An error in one namespace does not stop the
    // others.
    let existing = namespaces.expand().into_iter();
    let opened = existing.filter_map(|name| name.open().ok());
    let remove = |namespace: Namespace| namespace.enter(|| remove_filters_here(programs))?;
    let removed: Vec<_> = own.into_iter().chain(opened).map(remove).collect();
    removed.into_iter().collect()
}

fn remove_filters_here(programs: &[u32]) -> Result<(), Error> {
    let devices = Device::list()?;
    let _lock = ClsactLock::acquire();
    for device in devices {
        let mut owns_qdisc = false;
        for point in [INGRESS, EGRESS] {
            for filter in filters(device.index, point).unwrap_or_default() {
                let has_program = filter.program.is_some_and(|it| programs.contains(&it));
                if has_program && (Filter { point, filter }).remove(device.index).is_ok() {
                    owns_qdisc |= OWNED_HANDLES.contains(&filter.handle);
                }
            }
        }
        if owns_qdisc {
            remove_if_unused(device.index);
        }
    }
    Ok(())
}

/// True if the handle of a filter at the device marks its discipline as pillion's.
fn is_owned_qdisc(device: u32) -> bool {
    let existing = [INGRESS, EGRESS].map(|point| filters(device, point).unwrap_or_default());
    let is_ours = |it: &netlink::Filter| {
        OWNED_HANDLES.contains(&it.handle) && PRIORITIES.contains(&it.priority)
    };
    existing.iter().flatten().any(is_ours)
}

fn remove_if_unused(device: u32) {
    /// Maximum tries to remove the discipline: it is busy during any request for a filter (since
    /// Linux 6.4, 84ad0af0bccd).
    const ATTEMPTS: u32 = 100;
    let is_empty = |point| filters(device, point).is_ok_and(|filters| filters.is_empty());
    let mut both = hook(device, INGRESS | EGRESS);
    for _ in 0..ATTEMPTS {
        if !is_empty(INGRESS) || !is_empty(EGRESS) {
            return;
        }
        // SAFETY: a call with a description of its own, which it only reads.
        if unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut both) } != -libc::EBUSY {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The existing filters. They are listed, never requested individually: such a request holds the
/// discipline while it waits for the kernel's lock, and a removal meanwhile fails.
fn filters(
    device: u32,
    point: libbpf_sys::bpf_tc_attach_point,
) -> io::Result<Vec<netlink::Filter>> {
    const CLSACT_INGRESS: u32 = 0xffff_fff2;
    const CLSACT_EGRESS: u32 = 0xffff_fff3;
    let parent = if point == INGRESS {
        CLSACT_INGRESS
    } else {
        CLSACT_EGRESS
    };
    netlink::list_filters(device, parent)
}

/// The priority after all existing filters; the kernel puts a filter before others of the same
/// priority.
fn next_priority(filters: &[netlink::Filter]) -> u32 {
    let next_priority = filters.iter().map(|filter| filter.priority + 1);
    let next_priority = next_priority.max().unwrap_or_default();
    next_priority.clamp(*PRIORITIES.start(), *PRIORITIES.end())
}

fn hook(device: u32, point: libbpf_sys::bpf_tc_attach_point) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
        ifindex: device.cast_signed(),
        attach_point: point,
        ..Default::default()
    }
}

fn options(handle: u32, priority: u32) -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
        handle,
        priority,
        ..Default::default()
    }
}

fn succeeded(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

/// The turn's name, which one socket of the network namespace can have; it is free again once that
/// is closed, however its process ends.
const LOCK_NAME: &[u8] = b"pillion-clsact";

/// The lock for changes of clsact in a network namespace, until it is dropped. Only one pillion at
/// a time removes an empty discipline, or adds filters to an existing one.
#[derive(Debug)]
pub(crate) struct ClsactLock {
    _socket: Option<UnixDatagram>,
}

impl ClsactLock {
    /// Waits for the lock, at most two seconds, and only once: any process may hold that name
    /// forever.
    pub(crate) fn acquire() -> Self {
        const ATTEMPTS: u32 = 400;
        static TIMED_OUT: AtomicBool = AtomicBool::new(false);
        let bind = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(LOCK_NAME)?);
        for _ in 0..ATTEMPTS {
            match bind() {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    if TIMED_OUT.load(Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                bound => {
                    return Self {
                        _socket: bound.ok(),
                    };
                }
            }
        }
        TIMED_OUT.store(true, Ordering::Relaxed);
        Self { _socket: None }
    }
}
