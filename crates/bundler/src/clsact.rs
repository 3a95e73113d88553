//! The way into a device's path from before Linux 6.6: filters of a clsact discipline, which
//! may be others' as well. Unlike links, filters do not end with the process.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::turn::Turn;
use crate::{Device, Error, Namespace, NamespaceName, netlink};

const INGRESS: libbpf_sys::bpf_tc_attach_point = libbpf_sys::BPF_TC_INGRESS;
const EGRESS: libbpf_sys::bpf_tc_attach_point = libbpf_sys::BPF_TC_EGRESS;

/// Priorities that are ours, behind those that the kernel gives out itself.
const OURS: RangeInclusive<u32> = 0xff00..=0xffff;

/// Our filters at one device; dropping it removes them.
#[derive(Debug)]
pub(crate) struct Clsact {
    namespace: Namespace,
    filters: Filters,
}

/// The same, from inside the device's network namespace.
#[derive(Debug)]
struct Filters {
    device: u32,
    /// The discipline was not there before.
    made: bool,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, Copy)]
struct Filter {
    point: libbpf_sys::bpf_tc_attach_point,
    handle: u32,
    priority: u32,
    /// The id of its program.
    program: u32,
}

impl Clsact {
    pub(crate) fn attach(
        device: &Device,
        report: BorrowedFd,
        egress: BorrowedFd,
    ) -> Result<io::Result<Self>, Error> {
        let attach = || Filters::attach(device.index, report, egress);
        let attached = device.namespace.enter(attach)?;
        Ok(attached.map(|filters| Self {
            namespace: device.namespace.clone(),
            filters,
        }))
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

impl Filters {
    fn attach(device: u32, report: BorrowedFd, egress: BorrowedFd) -> io::Result<Self> {
        let _turn = Turn::take();
        let mut both = hook(device, INGRESS | EGRESS);
        // SAFETY: a call with a description of its own, which it only reads.
        let made = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut both) } {
            result if result == -libc::EEXIST => false,
            result => succeeded(result).map(|()| true)?,
        };
        let mut attached = Self {
            device,
            made,
            filters: Vec::with_capacity(2),
        };
        for (point, program) in [(INGRESS, report), (EGRESS, egress)] {
            match Filter::attach(device, point, program) {
                Ok(filter) => attached.filters.push(filter),
                Err(error) => {
                    attached.remove_in_turn();
                    return Err(error);
                }
            }
        }
        Ok(attached)
    }

    fn hold(&self) -> bool {
        self.filters.iter().all(|filter| filter.holds(self.device))
    }

    fn remove(&self) {
        let _turn = Turn::take();
        self.remove_in_turn();
    }

    fn remove_in_turn(&self) {
        for filter in self.filters.iter().filter(|it| it.holds(self.device)) {
            let _ = filter.remove(self.device);
        }
        if self.made && is_unused(self.device) {
            let mut both = hook(self.device, INGRESS | EGRESS);
            // SAFETY: a call with a description of its own, which it only reads.
            unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut both) };
        }
    }
}

impl Filter {
    fn attach(
        device: u32,
        point: libbpf_sys::bpf_tc_attach_point,
        program: BorrowedFd,
    ) -> io::Result<Self> {
        let mut options = options(0, last(device, point)?);
        options.prog_fd = program.as_raw_fd();
        // SAFETY: both live across the call.
        succeeded(unsafe { libbpf_sys::bpf_tc_attach(&hook(device, point), &raw mut options) })?;
        Ok(Self {
            point,
            handle: options.handle,
            priority: options.priority,
            program: options.prog_id,
        })
    }

    /// The one with this handle and priority.
    fn at(
        device: u32,
        point: libbpf_sys::bpf_tc_attach_point,
        (handle, priority): (u32, u32),
    ) -> io::Result<Self> {
        let mut options = options(handle, priority);
        // SAFETY: both live across the call.
        succeeded(unsafe { libbpf_sys::bpf_tc_query(&hook(device, point), &raw mut options) })?;
        Ok(Self {
            point,
            handle,
            priority,
            program: options.prog_id,
        })
    }

    /// False if it is gone; another one may have its handle.
    fn holds(self, device: u32) -> bool {
        Self::at(device, self.point, (self.handle, self.priority))
            .is_ok_and(|found| found.program == self.program)
    }

    fn remove(self, device: u32) -> io::Result<()> {
        let options = options(self.handle, self.priority);
        // SAFETY: both live across the call.
        succeeded(unsafe {
            libbpf_sys::bpf_tc_detach(&hook(device, self.point), &raw const options)
        })
    }
}

/// Removes all filters with one of these programs from the devices of the network
/// namespaces named, or, where none is, of this one, where the process that attached them
/// could not do so.
///
/// # Errors
/// [`Error::System`] if the devices cannot be listed.
pub fn remove_filters(programs: &[u32], namespaces: &[NamespaceName]) -> Result<(), Error> {
    if namespaces.is_empty() {
        return remove_filters_here(programs);
    }
    // With one that is gone, its filters are.
    for namespace in namespaces.iter().filter_map(|name| name.open().ok()) {
        namespace.enter(|| remove_filters_here(programs))??;
    }
    Ok(())
}

fn remove_filters_here(programs: &[u32]) -> Result<(), Error> {
    for device in Device::list()? {
        for point in [INGRESS, EGRESS] {
            for place in filters(device.index, point).unwrap_or_default() {
                if let Ok(filter) = Filter::at(device.index, point, place)
                    && programs.contains(&filter.program)
                {
                    let _ = filter.remove(device.index);
                }
            }
        }
    }
    Ok(())
}

fn is_unused(device: u32) -> bool {
    let is_empty = |point| filters(device, point).is_ok_and(|filters| filters.is_empty());
    is_empty(INGRESS) && is_empty(EGRESS)
}

fn filters(device: u32, point: libbpf_sys::bpf_tc_attach_point) -> io::Result<Vec<(u32, u32)>> {
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
fn last(device: u32, point: libbpf_sys::bpf_tc_attach_point) -> io::Result<u32> {
    let behind = filters(device, point)?.into_iter().map(|(_, it)| it + 1);
    let behind = behind.max().unwrap_or_default();
    Ok(behind.clamp(*OURS.start(), *OURS.end()))
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
