use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use pillion_bpf::host::interruption::without_signals;

use crate::skeleton::GrowSkelBuilder;
use crate::tcx::attach;

/// Segments with payload that leave a device over IPv4 grow, until this is dropped: in front of
/// their own payload they carry bytes that the receiver has had. All that is sent are zeroes.
pub struct Growth {
    _link: OwnedFd,
}

impl Growth {
    /// Has segments that leave a device grow by so many bytes.
    ///
    /// # Panics
    /// When the kernel refuses, or there is no such device.
    #[must_use]
    pub fn begin(device: &str, bytes: u32) -> Self {
        let mut storage = MaybeUninit::uninit();
        let mut open = GrowSkelBuilder::default()
            .open(&mut storage)
            .expect("the tests' program");
        open.maps
            .rodata_data
            .as_mut()
            .expect("read-only data")
            .bytes = bytes;
        let skel = without_signals(|| open.load()).expect("the kernel takes the tests' program");
        let program = skel.progs.grow.as_fd().try_clone_to_owned();
        Self {
            _link: attach(
                &program.expect("a descriptor"),
                device,
                libbpf_sys::BPF_TCX_EGRESS,
            ),
        }
    }
}
