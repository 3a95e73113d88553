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

/// Priorities of pillion's filters, behind those that the kernel gives out itself.
const OURS: RangeInclusive<u32> = 0xff00..=0xffff;

/// Handles that say: a pillion made the discipline, so that the last one to leave it, or the
/// janitor, removes it. (`pill` and a number.)
const MADE: RangeInclusive<u32> = 0x7069_6c00..=0x7069_6cff;

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
    made: bool,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, Copy)]
struct Filter {
    point: libbpf_sys::bpf_tc_attach_point,
    is: netlink::Filter,
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
            Err(Refusal::Ingress) => Err(Error::IngressTaken {
                device: device.to_string(),
            }),
            Err(Refusal::System(error)) => Err(Error::at_device(device, Hook::Clsact, error)),
        }
    }

    /// Removes the filter at egress.
    pub(crate) fn stop_bundling(&mut self) {
        let filters = &mut self.filters;
        // What fails here is gone already, with the device.
        let _ = self.namespace.enter(|| filters.stop_bundling());
    }

    /// False if somebody, or the device's end, has removed a filter.
    pub(crate) fn holds(&self) -> bool {
        let hold = || self.filters.hold();
        self.namespace.enter(hold).unwrap_or(false)
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        // What fails here is gone already, with the device.
        let _ = self.namespace.enter(|| self.filters.remove());
    }
}

/// Why filters are not attached.
enum Refusal {
    /// The discipline `ingress` has the place of clsact, and has no egress.
    Ingress,
    System(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Filters {
    fn attach(device: u32, dsack: BorrowedFd, egress: BorrowedFd) -> Result<Self, Refusal> {
        /// Tries to attach: who heeds no turn may remove the discipline before our filters are in
        /// it.
        const ATTEMPTS: u32 = 5;
        let _turn = Turn::take();
        let mut attempt = 1;
        loop {
            let attached = Self::attach_in_turn(device, dsack, egress);
            let again = match &attached {
                Ok(attached) => !attached.hold(),
                Err(Refusal::System(error)) => error.raw_os_error() != Some(libc::ENODEV),
                Err(Refusal::Ingress) => false,
            };
            if !again || attempt == ATTEMPTS {
                return attached;
            }
            attempt += 1;
        }
    }

    fn attach_in_turn(device: u32, dsack: BorrowedFd, egress: BorrowedFd) -> Result<Self, Refusal> {
        let mut both = hook(device, INGRESS | EGRESS);
        // SAFETY: a call with a description of its own, which it only reads.
        let made = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut both) } {
            result if result == -libc::EEXIST => {
                let qdiscs = netlink::list_qdiscs(Some(device))?;
                if qdiscs.iter().any(|qdisc| qdisc.kind == "ingress") {
                    return Err(Refusal::Ingress);
                }
                was_made(device)
            }
            result => succeeded(result).map(|()| true)?,
        };
        let mut attached = Self {
            device,
            made,
            filters: Vec::with_capacity(2),
        };
        for (point, program) in [(INGRESS, dsack), (EGRESS, egress)] {
            match Filter::attach(device, point, program, made) {
                Ok(filter) => attached.filters.push(filter),
                Err(error) => {
                    attached.remove_in_turn();
                    return Err(error.into());
                }
            }
        }
        Ok(attached)
    }

    fn hold(&self) -> bool {
        self.filters.iter().all(|filter| filter.holds(self.device))
    }

    fn stop_bundling(&mut self) {
        let _turn = Turn::take();
        let device = self.device;
        let egress = self.filters.extract_if(.., |it| it.point == EGRESS);
        for filter in egress.filter(|it| it.holds(device)) {
            let _ = filter.remove(device);
        }
    }

    fn remove(&self) {
        let _turn = Turn::take();
        self.remove_in_turn();
    }

    fn remove_in_turn(&self) {
        let ours = self.filters.iter().filter(|it| it.holds(self.device));
        let removed = ours.filter(|it| it.remove(self.device).is_ok()).count();
        // If none was there, the discipline is another one by now.
        if self.made && (removed > 0 || self.filters.is_empty()) {
            remove_if_unused(self.device);
        }
    }
}

impl Filter {
    fn attach(
        device: u32,
        point: libbpf_sys::bpf_tc_attach_point,
        program: BorrowedFd,
        made: bool,
    ) -> io::Result<Self> {
        let there = filters(device, point)?;
        let priority = behind(&there);
        let is_free = |handle: &u32| {
            let has_it = |it: &netlink::Filter| (it.handle, it.priority) == (*handle, priority);
            !there.iter().any(has_it)
        };
        let marked = made.then(|| MADE.clone().find(is_free)).flatten();
        // With no handle, the kernel gives one.
        let mut options = options(marked.unwrap_or_default(), priority);
        options.prog_fd = program.as_raw_fd();
        // SAFETY: both live across the call.
        succeeded(unsafe { libbpf_sys::bpf_tc_attach(&hook(device, point), &raw mut options) })?;
        let is = netlink::Filter {
            handle: options.handle,
            priority: options.priority,
            program: Some(options.prog_id),
        };
        Ok(Self { point, is })
    }

    /// False if the filter is gone; another one may have its handle.
    fn holds(&self, device: u32) -> bool {
        filters(device, self.point).is_ok_and(|there| there.contains(&self.is))
    }

    fn remove(&self, device: u32) -> io::Result<()> {
        let options = options(self.is.handle, self.is.priority);
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
    // With one that is gone, its filters are. One that cannot be cleaned keeps no other from it.
    let there = namespaces.now().into_iter();
    let opened = there.filter_map(|name| name.open().ok());
    let remove = |namespace: Namespace| namespace.enter(|| remove_filters_here(programs))?;
    let removed: Vec<_> = own.into_iter().chain(opened).map(remove).collect();
    removed.into_iter().collect()
}

fn remove_filters_here(programs: &[u32]) -> Result<(), Error> {
    let devices = Device::list()?;
    let _turn = Turn::take();
    for device in devices {
        let mut made = false;
        for point in [INGRESS, EGRESS] {
            for is in filters(device.index, point).unwrap_or_default() {
                let is_theirs = is.program.is_some_and(|it| programs.contains(&it));
                if is_theirs && (Filter { point, is }).remove(device.index).is_ok() {
                    made |= MADE.contains(&is.handle);
                }
            }
        }
        if made {
            remove_if_unused(device.index);
        }
    }
    Ok(())
}

/// True if the handle of a filter at the device says that a pillion made its discipline.
fn was_made(device: u32) -> bool {
    let there = [INGRESS, EGRESS].map(|point| filters(device, point).unwrap_or_default());
    let is_ours = |it: &netlink::Filter| MADE.contains(&it.handle) && OURS.contains(&it.priority);
    there.iter().flatten().any(is_ours)
}

fn remove_if_unused(device: u32) {
    /// Tries to remove the discipline: it is busy while anybody's request for a filter is under way
    /// (since Linux 6.4, 84ad0af0bccd).
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

/// The filters that are there. They are listed, never asked for one by one: a request for one holds
/// the discipline while it waits for the kernel's lock, and who removes that meanwhile is refused.
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

/// The priority behind all filters that are there; the kernel puts a filter in front of others of
/// the same priority.
fn behind(filters: &[netlink::Filter]) -> u32 {
    let behind = filters.iter().map(|filter| filter.priority + 1);
    let behind = behind.max().unwrap_or_default();
    behind.clamp(*OURS.start(), *OURS.end())
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
const NAME: &[u8] = b"pillion-clsact";

/// The turn to change clsact in a network namespace; dropping it lets the next one. A discipline that
/// is empty may be removed, and filters are added to one that is there: one pillion at a time does
/// either.
#[derive(Debug)]
pub(crate) struct Turn {
    _socket: Option<UnixDatagram>,
}

impl Turn {
    /// Waits for the turn, but no longer than two seconds, and that once: anybody may have the
    /// name, and never let go.
    pub(crate) fn take() -> Self {
        const ATTEMPTS: u32 = 400;
        static IN_VAIN: AtomicBool = AtomicBool::new(false);
        let bind = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(NAME)?);
        for _ in 0..ATTEMPTS {
            match bind() {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    if IN_VAIN.load(Ordering::Relaxed) {
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
        IN_VAIN.store(true, Ordering::Relaxed);
        Self { _socket: None }
    }
}
