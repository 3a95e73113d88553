//! VLAN tags without VLAN devices, by programs before and behind the bundlers.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::tcx::attach;
use skeleton::TagsSkelBuilder;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tags.skel.rs"));
}

/// The programs, not yet at work.
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
        let skel = open.load().expect("the kernel takes the tests' programs");
        let own = |fd: std::os::fd::BorrowedFd| fd.try_clone_to_owned().expect("a descriptor");
        Self {
            device: device.to_owned(),
            add: own(skel.progs.add_tags.as_fd()),
            take: own(skel.progs.take_tags.as_fd()),
            links: Vec::new(),
        }
    }

    /// Packets that leave get their tags before any program that is attached later.
    pub fn begin_egress(&mut self) {
        let link = attach(&self.add, &self.device, libbpf_sys::BPF_TCX_EGRESS);
        self.links.push(link);
    }

    /// Packets that arrive keep their tags for the programs attached before.
    pub fn begin_ingress(&mut self) {
        let link = attach(&self.take, &self.device, libbpf_sys::BPF_TCX_INGRESS);
        self.links.push(link);
    }
}
