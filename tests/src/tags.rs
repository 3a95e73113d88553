//! VLAN tags without VLAN devices, by programs before and behind the bundlers.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use nix::net::if_::if_nametoindex;

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
    device: i32,
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
        let index = if_nametoindex(device).expect("the device");
        Self {
            device: index.cast_signed(),
            add: own(skel.progs.add_tags.as_fd()),
            take: own(skel.progs.take_tags.as_fd()),
            links: Vec::new(),
        }
    }

    /// Packets that leave get their tags before any program that is attached later.
    pub fn begin_egress(&mut self) {
        let link = attach(&self.add, self.device, libbpf_sys::BPF_TCX_EGRESS);
        self.links.push(link);
    }

    /// Packets that arrive keep their tags for the programs attached before.
    pub fn begin_ingress(&mut self) {
        let link = attach(&self.take, self.device, libbpf_sys::BPF_TCX_INGRESS);
        self.links.push(link);
    }
}

fn attach(program: &OwnedFd, device: i32, place: u32) -> OwnedFd {
    // SAFETY: a system call on a descriptor and an interface index; no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), device, place, std::ptr::null())
    };
    assert!(link >= 0, "the tests' programs attach: {link}");
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(link) }
}
