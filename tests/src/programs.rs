//! Programs of other parties next to the bundler: `programs.bpf.c` in this folder, and programs
//! that return a constant.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, OpenObject, TC_EGRESS, TC_INGRESS, TcHookBuilder,
};
use libbpf_sys::{
    BPF_F_AFTER, BPF_F_BEFORE, bpf_attach_type, bpf_insn, bpf_link_create_opts, bpf_prog_load,
    bpf_prog_load_opts, bpf_prog_type,
};
use nix::net::if_::if_nametoindex;
use pillion_bpf::Hook;
use pillion_bpf::host::interruption::without_signals;
use skeleton::{ProgramsSkel, ProgramsSkelBuilder};

/// Rust side of `programs.bpf.c`, generated from its BTF.
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/programs.skel.rs"));
}

/// Loads the named programs of `programs.bpf.c` after setting their constants.
fn load<'a>(
    storage: &'a mut MaybeUninit<OpenObject>,
    names: &[&str],
    set: impl FnOnce(&mut skeleton::types::rodata),
) -> ProgramsSkel<'a> {
    let mut open = ProgramsSkelBuilder::default()
        .open(storage)
        .expect("the tests' programs");
    set(open.maps.rodata_data.as_mut().expect("read-only data"));
    for mut program in open.open_object_mut().progs_mut() {
        program.set_autoload(names.iter().any(|name| program.name() == *name));
    }
    without_signals(|| open.load()).expect("the kernel accepts the tests' programs")
}

/// Attaches a program to a device until the returned link is closed; `hook_point` is `BPF_TCX_EGRESS`
/// or `BPF_TCX_INGRESS`, `order` is `BPF_F_BEFORE` or `BPF_F_AFTER` all programs attached already.
fn attach_tcx(program: &OwnedFd, device: &str, hook_point: u32, order: u32) -> OwnedFd {
    let index = if_nametoindex(device).expect("the device").cast_signed();
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as _,
        flags: order,
        ..Default::default()
    };
    // SAFETY: a system call on a descriptor and an interface index; the options outlive it.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), index, hook_point, &raw const options)
    };
    assert!(link >= 0, "the tests' programs attach: {link}");
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(link) }
}

/// Programs that add and remove VLAN tags.
pub(crate) struct VlanTagging {
    device: String,
    add_program: OwnedFd,
    remove_program: OwnedFd,
    links: Vec<OwnedFd>,
}

impl VlanTagging {
    pub fn load(device: &str, tags: usize) -> Self {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage, &["add_tags", "remove_tags"], |constants| {
            constants.tags = tags as u32;
        });
        let clone_fd = |fd: std::os::fd::BorrowedFd| fd.try_clone_to_owned().expect("a descriptor");
        Self {
            device: device.to_owned(),
            add_program: clone_fd(skel.progs.add_tags.as_fd()),
            remove_program: clone_fd(skel.progs.remove_tags.as_fd()),
            links: Vec::new(),
        }
    }

    /// Adds tags to outgoing packets before any program attached already.
    pub fn attach_egress(&mut self) {
        self.links
            .extend(attach(&self.add_program, &self.device, HookPoint::Egress));
    }

    /// Removes tags of incoming packets after the programs attached before.
    pub fn attach_ingress(&mut self) {
        self.links.extend(attach(
            &self.remove_program,
            &self.device,
            HookPoint::Ingress,
        ));
    }
}

#[derive(Clone, Copy)]
enum HookPoint {
    Egress,
    Ingress,
}

/// Attaches a program with the same hook as the bundlers, so that their order is fixed.
fn attach(program: &OwnedFd, device: &str, hook_point: HookPoint) -> Option<OwnedFd> {
    match Hook::of_this_kernel() {
        Hook::Tcx => {
            let (hook_point, order) = hook_point.tcx_place();
            Some(attach_tcx(program, device, hook_point, order))
        }
        Hook::Clsact => {
            attach_filter(program, device, hook_point);
            None
        }
    }
}

impl HookPoint {
    fn tcx_place(self) -> (u32, u32) {
        match self {
            Self::Egress => (libbpf_sys::BPF_TCX_EGRESS, BPF_F_BEFORE),
            Self::Ingress => (libbpf_sys::BPF_TCX_INGRESS, BPF_F_AFTER),
        }
    }
}

/// Attaches a program as a clsact filter, which ends with the device.
fn attach_filter(program: &OwnedFd, device: &str, hook_point: HookPoint) {
    let index = if_nametoindex(device).expect("the device").cast_signed();
    // Bundlers run last, in the order of attachment.
    let (point, priority) = match hook_point {
        HookPoint::Egress => (TC_EGRESS, 1),
        HookPoint::Ingress => (TC_INGRESS, 0xffff),
    };
    let mut hook = TcHookBuilder::new(program.as_fd());
    let mut hook = hook.ifindex(index).priority(priority).hook(point);
    let attached = hook.create().and_then(|mut hook| hook.attach());
    attached.expect("the tests' programs attach");
}

/// Program of another party at a cgroup, until dropped: it handles a socket option itself and hides
/// it from the kernel.
pub struct OptionHandler {
    _link: Link,
}

impl OptionHandler {
    /// Handles this option of sockets in this cgroup.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn at(cgroup: &Path, (level, option): (i32, i32)) -> Self {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage, &["answer"], |constants| {
            constants.level = level;
            constants.option = option;
        });
        let cgroup = File::open(cgroup).expect("the cgroup");
        let link = skel.progs.answer.attach_cgroup(cgroup.as_raw_fd());
        Self {
            _link: link.expect("it is attached"),
        }
    }
}

/// Program that pads IPv4 segments leaving a device, until dropped: bytes that the receiver has
/// already precede the payload. All data must be zeroes.
pub struct SegmentPadder {
    _link: OwnedFd,
}

impl SegmentPadder {
    /// Pads segments that leave a device by `bytes` bytes.
    ///
    /// # Panics
    /// If the kernel refuses, or the device does not exist.
    #[must_use]
    pub fn start(device: &str, bytes: u32) -> Self {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage, &["grow"], |constants| constants.bytes = bytes);
        let program = skel.progs.grow.as_fd().try_clone_to_owned();
        Self {
            _link: attach_tcx(
                &program.expect("a descriptor"),
                device,
                libbpf_sys::BPF_TCX_EGRESS,
                BPF_F_AFTER,
            ),
        }
    }
}

/// Program of another party that runs first for all packets that leave a device, until dropped.
pub struct FirstProgram {
    _link: OwnedFd,
}

impl FirstProgram {
    /// Passes packets with this verdict: `TCX_PASS` (0) ends the chain, `TCX_NEXT` (-1) does not.
    ///
    /// # Panics
    /// If the kernel refuses, or the device does not exist.
    #[must_use]
    pub fn start(device: &str, verdict: i32) -> Self {
        let program = load_constant(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0, c"theirs", verdict);
        Self {
            _link: attach_tcx(&program, device, libbpf_sys::BPF_TCX_EGRESS, BPF_F_BEFORE),
        }
    }
}

/// Program of another party at the root cgroup, until dropped. It requests no callbacks itself: it
/// counts state changes that others requested.
pub struct StateCounter {
    count: MapHandle,
    _link: Link,
}

impl StateCounter {
    /// Counts for connections to this peer port.
    ///
    /// # Panics
    /// If the kernel refuses or has no cgroup v2.
    #[must_use]
    pub fn start(port: u16) -> Self {
        let mut storage = MaybeUninit::uninit();
        let skel = load(&mut storage, &["note_state"], |constants| {
            constants.port = port.into();
        });
        let root = pillion_bpf::cgroup2_mount().expect("cgroup v2");
        let root = File::open(root).expect("the root cgroup");
        let link = skel.progs.note_state.attach_cgroup(root.as_raw_fd());
        Self {
            count: MapHandle::try_from(&skel.maps.bss).expect("its map"),
            _link: link.expect("it is attached"),
        }
    }

    /// Returns the number of state changes seen.
    ///
    /// # Panics
    /// If the map cannot be read.
    #[must_use]
    pub fn count(&self) -> u64 {
        let count = self.count.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let count = count.expect("a map that can be read").expect("its value");
        u64::from_ne_bytes(count[..8].try_into().expect("a counter"))
    }
}

/// Loads a program with this name that passes all received data to sockets of a sockmap.
///
/// # Panics
/// If the kernel refuses.
#[must_use]
pub fn load_verdict(name: &CStr) -> OwnedFd {
    const SK_PASS: i32 = 1;
    load_constant(
        libbpf_sys::BPF_PROG_TYPE_SK_SKB,
        libbpf_sys::BPF_SK_SKB_VERDICT,
        name,
        SK_PASS,
    )
}

pub(crate) fn load_constant(
    kind: bpf_prog_type,
    attach: bpf_attach_type,
    name: &CStr,
    outcome: i32,
) -> OwnedFd {
    const LOAD_RESULT: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let instruction = |code, imm| bpf_insn {
        code,
        imm,
        ..Default::default()
    };
    let instructions = [instruction(LOAD_RESULT, outcome), instruction(EXIT, 0)];
    let options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        expected_attach_type: attach,
        ..Default::default()
    };
    // SAFETY: name, instructions and options outlive the call, and their lengths are stated.
    own_fd(without_signals(|| unsafe {
        bpf_prog_load(
            kind,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            (&raw const options).cast_mut(),
        )
    }))
}

pub(crate) fn own_fd(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    // SAFETY: it is new, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Detaches a link by its id, like `bpftool link detach`. Returns false for kinds that cannot be
/// detached, such as iterators.
///
/// # Panics
/// If there is no such link.
#[must_use]
pub fn detach_link(id: u32) -> bool {
    // SAFETY: a plain system call.
    let link = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
    assert!(
        link >= 0,
        "link {id}: {}",
        io::Error::from_raw_os_error(-link)
    );
    // SAFETY: a new descriptor that nobody else owns.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: a plain system call on a descriptor.
    match unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) } {
        0 => true,
        error if error == -libc::EOPNOTSUPP => false,
        error => panic!("link {id}: {}", io::Error::from_raw_os_error(-error)),
    }
}
