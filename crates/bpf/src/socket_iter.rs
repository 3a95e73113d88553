//! Goes through the sockets for which a map keeps something (`bpf/bundler/socket_iter.h`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use crate::host::interruption::without_signals;
use crate::link::{self, Target};
use crate::{Error, Namespace};

/// What a record begins with: the socket's cookie.
const COOKIE: usize = size_of::<u64>();

/// The kernel's iterator over what is kept for sockets.
const STORAGE: &CStr = c"bpf_sk_storage_map";

const BPF_ALU64_MOV_K: u8 = 0xb7;
const BPF_JMP_EXIT: u8 = 0x95;

/// What goes through the sockets for which one map keeps something.
#[derive(Debug)]
pub(crate) enum Walk {
    /// Over the map's own entries.
    Storage(OwnedFd),
    /// Over TCP's sockets in the network namespaces that are named, and over those that processes have
    /// open: what no process has open in another namespace is missed.
    Sockets([OwnedFd; 2]),
}

impl Walk {
    /// A walk over all that `map` keeps.
    pub(crate) fn over_storage(program: BorrowedFd, map: BorrowedFd) -> io::Result<Self> {
        let over = Target::Iterator(Some(map));
        link::attach(program, &over).map(Self::Storage)
    }

    /// A walk over sockets, by programs that know the map.
    pub(crate) fn over_sockets(by_tcp: BorrowedFd, by_file: BorrowedFd) -> io::Result<Self> {
        let every = Target::Iterator(None);
        let [tcp, files] = [by_tcp, by_file].map(|program| link::attach(program, &every));
        Ok(Self::Sockets([tcp?, files?]))
    }

    /// The same walk, for another thread.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Storage(link) => Self::Storage(link.try_clone()?),
            Self::Sockets([tcp, files]) => Self::Sockets([tcp.try_clone()?, files.try_clone()?]),
        })
    }

    /// What the programs tell of each socket: so many bytes, of which the first eight are its cookie.
    /// Where a walk over sockets is to miss none, it has to know the `namespaces` that they are in.
    pub(crate) fn read<const LENGTH: usize>(
        &self,
        namespaces: &[Namespace],
    ) -> Result<Vec<[u8; LENGTH]>, Error> {
        let run = |link: &OwnedFd| link::run_iterator(link.as_fd());
        let failed = |error| Error::system("go through the connections", error);
        let mut told = Vec::new();
        let mut add = |bytes: io::Result<Vec<u8>>| {
            told.extend_from_slice(bytes.map_err(failed)?.as_chunks().0);
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
                told.retain(|record: &[u8; LENGTH]| seen.insert(record[..COOKIE].to_vec()));
            }
        }
        Ok(told)
    }
}

/// True if the kernel lets programs go through a map's own entries. A hardened one may refuse that
/// with EPERM, whoever asks; all else works there.
pub(crate) fn can_be_over_storage() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(try_over_storage)
}

fn try_over_storage() -> bool {
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
    link::own(program).is_ok()
}
