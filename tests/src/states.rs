use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use pillion_bpf::host::interruption::without_signals;

use crate::skeleton::StatesSkelBuilder;

/// Somebody else's program at the root cgroup, until this is dropped. It asks for nothing: what it is told
/// of connections' states, others have asked the kernel for.
pub struct States {
    told: MapHandle,
    _link: Link,
}

impl States {
    /// Counts for connections to peers with this port.
    ///
    /// # Panics
    /// When the kernel refuses, or has no cgroup v2.
    #[must_use]
    pub fn begin(port: u16) -> Self {
        let mut storage = MaybeUninit::uninit();
        let mut open = StatesSkelBuilder::default()
            .open(&mut storage)
            .expect("the tests' program");
        let constants = open.maps.rodata_data.as_mut();
        constants.expect("read-only data").port = port.into();
        let skel = without_signals(|| open.load()).expect("the kernel takes the tests' program");
        let root = pillion_bpf::cgroup2_mount().expect("cgroup v2");
        let root = File::open(root).expect("the root cgroup");
        let link = skel.progs.note_state.attach_cgroup(root.as_raw_fd());
        Self {
            told: MapHandle::try_from(&skel.maps.bss).expect("its map"),
            _link: link.expect("it is attached"),
        }
    }

    /// How often it was told of a state.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[must_use]
    pub fn told(&self) -> u64 {
        let told = self.told.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let told = told.expect("a map that can be read").expect("its value");
        u64::from_ne_bytes(told[..8].try_into().expect("a counter"))
    }
}
