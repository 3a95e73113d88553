//! Loss of listed packets, which netem does not know.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, TC_INGRESS, TcHookBuilder};
use nix::net::if_::if_nametoindex;
use pillion_bpf::host::interruption::without_signals;

use super::Node;
use crate::Error;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod program {
    include!(concat!(env!("OUT_DIR"), "/listed_loss.skel.rs"));
}

/// The program that drops listed packets at a device. It stays there as long as the device does.
#[derive(Debug)]
pub struct ListedLoss(MapHandle);

/// The key under which the program counts what it dropped.
const DROPPED: u32 = 1;

impl ListedLoss {
    /// Drops the packets with these numbers, counted from 1, of those that arrive at a device.
    pub(super) fn attach(node: &Node, device: &str, numbers: &[u64]) -> Result<Self, Error> {
        let (device, numbers) = (device.to_owned(), numbers.to_vec());
        let attached = node.enter(move || attach(&device, &numbers))?;
        attached.map(Self).map_err(|source| Error::System {
            action: "put the program that drops listed packets to work",
            source,
        })
    }

    /// Packets that the program dropped.
    pub(super) fn dropped(&self) -> u64 {
        let count = self.0.lookup(&DROPPED.to_ne_bytes(), MapFlags::ANY);
        let count = count.ok().flatten().and_then(|bytes| bytes.try_into().ok());
        count.map_or(0, u64::from_ne_bytes)
    }
}

fn attach(device: &str, numbers: &[u64]) -> io::Result<MapHandle> {
    let index = if_nametoindex(device)?.cast_signed();
    let mut storage = MaybeUninit::uninit();
    let mut open = program::ListedLossSkelBuilder::default()
        .open(&mut storage)
        .map_err(io::Error::other)?;
    let entries = numbers.len().max(1) as u32;
    let sized = open.maps.listed.set_max_entries(entries);
    sized.map_err(io::Error::other)?;
    let skel = without_signals(|| open.load()).map_err(io::Error::other)?;
    for number in numbers {
        let stored = skel
            .maps
            .listed
            .update(&number.to_ne_bytes(), &[1], MapFlags::ANY);
        stored.map_err(io::Error::other)?;
    }
    let mut hook = TcHookBuilder::new(skel.progs.listed_loss.as_fd())
        .ifindex(index)
        .replace(true)
        .handle(1)
        .priority(1)
        .hook(TC_INGRESS);
    hook.create()
        .and_then(|mut hook| hook.attach())
        .map_err(io::Error::other)?;
    MapHandle::try_from(&skel.maps.listed_counts).map_err(io::Error::other)
}
