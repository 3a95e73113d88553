use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;

use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use pillion_bpf::host::interruption::without_signals;

use crate::skeleton::AnswersSkelBuilder;

/// Somebody else's program at a cgroup, until this is dropped: it answers a socket option itself, so
/// that the kernel hears nothing of it.
pub struct Answers {
    _link: Link,
}

impl Answers {
    /// Answers this option of sockets of this cgroup.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[must_use]
    pub fn at(cgroup: &Path, (level, option): (i32, i32)) -> Self {
        let mut storage = MaybeUninit::uninit();
        let mut open = AnswersSkelBuilder::default()
            .open(&mut storage)
            .expect("the tests' program");
        let constants = open.maps.rodata_data.as_mut().expect("read-only data");
        constants.level = level;
        constants.option = option;
        let skel = without_signals(|| open.load()).expect("the kernel takes the tests' program");
        let cgroup = File::open(cgroup).expect("the cgroup");
        let link = skel.progs.answer.attach_cgroup(cgroup.as_raw_fd());
        Self {
            _link: link.expect("it is attached"),
        }
    }
}
