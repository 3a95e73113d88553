//! Iterates over the sockets in a map (`bpf/bundler/socket_iter.h`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use crate::host::interruption::without_signals;
use crate::link::{self, AttachPoint};
use crate::{Error, Namespace};

/// Size of the socket's cookie, with which a record starts.
const COOKIE_BYTES: usize = size_of::<u64>();

/// The kernel's iterator over socket storage.
const STORAGE: &CStr = c"bpf_sk_storage_map";

const BPF_ALU64_MOV_K: u8 = 0xb7;
const BPF_JMP_EXIT: u8 = 0x95;
const BPF_LD_IMM64: u8 = 0x18;

/// An iterator over the sockets in one map.
#[derive(Debug)]
pub(crate) enum SocketIter {
    /// Over the map's own entries.
    Storage(OwnedFd),
    /// Over TCP's sockets in given network namespaces, and over sockets that processes have open.
    /// Closed sockets in other namespaces are missed.
    Sockets([OwnedFd; 2]),
}

impl SocketIter {
    /// An iterator over all entries of `map`.
    pub(crate) fn storage(program: BorrowedFd, map: BorrowedFd) -> io::Result<Self> {
        let point = AttachPoint::Iterator(Some(map));
        link::attach(program, &point).map(Self::Storage)
    }

    /// An iterator over sockets, by programs for the map.
    pub(crate) fn sockets(by_tcp: BorrowedFd, by_file: BorrowedFd) -> io::Result<Self> {
        let point = AttachPoint::Iterator(None);
        let [tcp, files] = [by_tcp, by_file].map(|program| link::attach(program, &point));
        Ok(Self::Sockets([tcp?, files?]))
    }

    /// Clones the iterator, for another thread.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Storage(link) => Self::Storage(link.try_clone()?),
            Self::Sockets([tcp, files]) => Self::Sockets([tcp.try_clone()?, files.try_clone()?]),
        })
    }

    /// Reads the programs' record of each socket, `LENGTH` bytes that start with its cookie. An
    /// iteration over sockets covers only these `namespaces`.
    pub(crate) fn read<const LENGTH: usize>(
        &self,
        namespaces: &[Namespace],
    ) -> Result<Vec<[u8; LENGTH]>, Error> {
        let run = |link: &OwnedFd| link::run_iterator(link.as_fd());
        let failed = |error| Error::system("go through the connections", error);
        let mut records = Vec::new();
        let mut add = |bytes: io::Result<Vec<u8>>| {
            records.extend_from_slice(bytes.map_err(failed)?.as_chunks().0);
            Ok::<_, Error>(())
        };
        match self {
            Self::Storage(link) => add(run(link))?,
            Self::Sockets([tcp, files]) => {
                for namespace in namespaces {
                    add(namespace.enter(|| run(tcp))?)?;
                }
                add(run(files))?;
                let mut seen = HashSet::new();
                records.retain(|record: &[u8; LENGTH]| {
                    seen.insert(record.first_chunk::<COOKIE_BYTES>().copied())
                });
            }
        }
        Ok(records)
    }
}

/// True if the kernel permits programs to iterate over a map's entries. A hardened kernel may
/// refuse with EPERM, for any caller; everything else works there.
pub(crate) fn is_storage_iterator_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(probe_storage_iterator)
}

fn probe_storage_iterator() -> bool {
    let instruction = |code, value| libbpf_sys::bpf_insn {
        code,
        imm: value,
        ..Default::default()
    };
    let return_0 = [
        instruction(BPF_ALU64_MOV_K, 0),
        instruction(BPF_JMP_EXIT, 0),
    ];
    load_iterator(btf_id(STORAGE), &return_0).is_ok()
}

/// Iterator program over sockets. Its relocation takes long, because it reads the types of the whole
/// kernel. So it is relocated once, and then loaded for each map.
#[derive(Debug)]
pub(crate) struct SocketProgram {
    btf_id: u32,
    instructions: Vec<libbpf_sys::bpf_insn>,
}

impl SocketProgram {
    /// The program with these relocated instructions, which use one map. `target` is what it
    /// iterates over, as in `tcp`.
    pub(crate) fn new(target: &CStr, instructions: &[libbpf_sys::bpf_insn]) -> Self {
        Self {
            btf_id: btf_id(target),
            instructions: instructions.to_vec(),
        }
    }

    /// Loads the program for this map.
    pub(crate) fn load(&self, map: BorrowedFd) -> io::Result<OwnedFd> {
        let mut instructions = self.instructions.clone();
        let is_map = |it: &&mut libbpf_sys::bpf_insn| {
            it.code == BPF_LD_IMM64 && u32::from(it.src_reg()) == libbpf_sys::BPF_PSEUDO_MAP_FD
        };
        for instruction in instructions.iter_mut().filter(is_map) {
            instruction.imm = map.as_raw_fd();
        }
        load_iterator(self.btf_id, &instructions)
    }
}

/// The id of the kernel's type of an iterator; an invalid one if the kernel does not have it.
fn btf_id(target: &CStr) -> u32 {
    let kind = libbpf_sys::BPF_TRACE_ITER;
    // SAFETY: it reads the name, which outlives the call.
    unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(target.as_ptr(), kind) }.cast_unsigned()
}

fn load_iterator(btf_id: u32, instructions: &[libbpf_sys::bpf_insn]) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_TRACE_ITER,
        attach_btf_id: btf_id,
        ..Default::default()
    };
    // SAFETY: a system call; what it reads outlives it, and the count is that of the instructions.
    let program = without_signals(|| unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            ptr::null(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            &raw mut options,
        )
    });
    link::owned_fd(program)
}
