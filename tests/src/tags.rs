//! VLAN tags without VLAN devices, by programs before and behind the bundlers.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHookBuilder};
use nix::net::if_::if_nametoindex;
use pillion_bpf::Hook;
use pillion_bpf::host::interruption::without_signals;

use crate::skeleton::TagsSkelBuilder;
use crate::tcx;

/// The programs that keep and add VLAN tags, not yet at work.
pub(crate) struct Tagging {
    device: String,
    add: OwnedFd,
    take: OwnedFd,
    links: Vec<OwnedFd>,
}

impl Tagging {
    pub fn load(device: &str, tags: usize) -> Self {
        let mut storage = MaybeUninit::uninit();
        let mut open = TagsSkelBuilder::default()
            .open(&mut storage)
            .expect("the tests' programs");
        open.maps.rodata_data.as_mut().expect("read-only data").tags = tags as u32;
        let skel = without_signals(|| open.load()).expect("the kernel takes the tests' programs");
        let own = |fd: std::os::fd::BorrowedFd| fd.try_clone_to_owned().expect("a descriptor");
        Self {
            device: device.to_owned(),
            add: own(skel.progs.add_tags.as_fd()),
            take: own(skel.progs.take_tags.as_fd()),
            links: Vec::new(),
        }
    }

    /// Has packets that leave get their tags before any program that is attached later.
    pub fn begin_egress(&mut self) {
        self.links
            .extend(attach(&self.add, &self.device, Place::Egress));
    }

    /// Has packets that arrive keep their tags for the programs attached before.
    pub fn begin_ingress(&mut self) {
        self.links
            .extend(attach(&self.take, &self.device, Place::Ingress));
    }
}

#[derive(Clone, Copy)]
enum Place {
    Egress,
    Ingress,
}

/// Attaches a program by the hook that the bundlers take as well, so that the order holds.
fn attach(program: &OwnedFd, device: &str, place: Place) -> Option<OwnedFd> {
    match Hook::of_this_kernel() {
        Hook::Tcx => Some(tcx::attach(program, device, place.of_tcx())),
        Hook::Clsact => {
            filter(program, device, place);
            None
        }
    }
}

impl Place {
    fn of_tcx(self) -> u32 {
        match self {
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        }
    }
}

/// Attaches a program as a filter of clsact; it ends with the device.
fn filter(program: &OwnedFd, device: &str, place: Place) {
    let index = if_nametoindex(device).expect("the device").cast_signed();
    // Bundlers stand last, in the order in which they came.
    let (point, priority) = match place {
        Place::Egress => (TC_EGRESS, 1),
        Place::Ingress => (TC_INGRESS, 0xffff),
    };
    let mut hook = TcHookBuilder::new(program.as_fd());
    let mut hook = hook.ifindex(index).priority(priority).hook(point);
    let attached = hook.create().and_then(|mut hook| hook.attach());
    attached.expect("the tests' programs attach");
}
