//! Iterates over the sockets in a map (`bpf/bundler/socket_iter.h`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
                records
                    .retain(|record: &[u8; LENGTH]| seen.insert(record[..COOKIE_BYTES].to_vec()));
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
    // SAFETY: system calls; what they read outlives them, and the count is that of the instructions.
    let program = without_signals(|| unsafe {
        let kind = libbpf_sys::BPF_TRACE_ITER;
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
            expected_attach_type: kind,
            attach_btf_id: libbpf_sys::libbpf_find_vmlinux_btf_id(STORAGE.as_ptr(), kind)
                .cast_unsigned(),
            ..Default::default()
        };
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            ptr::null(),
            c"GPL".as_ptr(),
            return_0.as_ptr(),
            return_0.len() as _,
            &raw mut options,
        )
    });
    link::owned_fd(program).is_ok()
}
