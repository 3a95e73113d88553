//! Programs of others, among which the bundler has to work: `programs.bpf.c` in this folder, and some
//! that return a constant, whatever they are shown.

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
use libbpf_sys::{bpf_attach_type, bpf_insn, bpf_prog_load, bpf_prog_load_opts, bpf_prog_type};
use nix::net::if_::if_nametoindex;
use pillion_bpf::Hook;
use pillion_bpf::host::interruption::without_signals;
use skeleton::{ProgramsSkel, ProgramsSkelBuilder};

/// The Rust side of `programs.bpf.c`, generated from its BTF.
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/programs.skel.rs"));
}

/// Loads those of the tests' programs that have these names, with their constants.
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
    without_signals(|| open.load()).expect("the kernel takes the tests' programs")
}

/// Has a program see a device's packets, behind those that are attached already, for as long as
/// what is returned is there; `place` is `BPF_TCX_EGRESS` or `BPF_TCX_INGRESS`.
fn attach_tcx(program: &OwnedFd, device: &str, place: u32) -> OwnedFd {
    let index = if_nametoindex(device).expect("the device").cast_signed();
    // SAFETY: a system call on a descriptor and an interface index; no options.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, place, std::ptr::null()) };
    assert!(link >= 0, "the tests' programs attach: {link}");
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(link) }
}

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
        let skel = load(&mut storage, &["add_tags", "take_tags"], |constants| {
            constants.tags = tags as u32;
        });
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
        Hook::Tcx => Some(attach_tcx(program, device, place.of_tcx())),
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
        let skel = load(&mut storage, &["grow"], |constants| constants.bytes = bytes);
        let program = skel.progs.grow.as_fd().try_clone_to_owned();
        Self {
            _link: attach_tcx(
                &program.expect("a descriptor"),
                device,
                libbpf_sys::BPF_TCX_EGRESS,
            ),
        }
    }
}

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
        let skel = load(&mut storage, &["note_state"], |constants| {
            constants.port = port.into();
        });
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

/// Loads a program of this name that lets sockets of a sockmap have all that they receive.
///
/// # Panics
/// When the kernel refuses.
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
    // SAFETY: it is new, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Detaches a link by its id, whoever holds it, as `bpftool link detach` does; false for a kind that
/// cannot be detached, as an iterator.
///
/// # Panics
/// When there is no such link.
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
