//! Links attach a program to its hook in the kernel until their last file descriptor is closed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use clap::ValueEnum;

/// Kernel interface by which programs are attached to devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// Linux 6.6: links, which end with the process
    Tcx,
    /// The older way: filters of the clsact queueing discipline
    Clsact,
}

impl Hook {
    /// The best hook that this kernel supports.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        /// Interface index of the loopback device of every network namespace.
        const LOOPBACK: i32 = 1;
        let mut programs = 0;
        // SAFETY: asks only for the number of programs, which lives across the call.
        let result = unsafe {
            libbpf_sys::bpf_prog_query(
                LOOPBACK,
                libbpf_sys::BPF_TCX_INGRESS,
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut programs,
            )
        };
        if result == -libc::EINVAL {
            Self::Clsact
        } else {
            Self::Tcx
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// Attachment point of a program.
pub(crate) enum AttachPoint<'a> {
    /// A device's egress (tcx), by interface index, before existing programs.
    Egress(u32),
    /// A device's ingress (tcx), by interface index, before existing programs.
    Ingress(u32),
    /// Packets that leave a cgroup's sockets.
    CgroupEgress(BorrowedFd<'a>),
    /// Packets that arrive at a cgroup's sockets.
    CgroupIngress(BorrowedFd<'a>),
    /// A cgroup's socket operations.
    SockOps(BorrowedFd<'a>),
    /// setsockopt(2) on a cgroup's sockets.
    SetSockOpt(BorrowedFd<'a>),
    /// getsockopt(2) on a cgroup's sockets.
    GetSockOpt(BorrowedFd<'a>),
    /// An iterator over the kernel's objects, or those of a map.
    Iterator(Option<BorrowedFd<'a>>),
}

/// Attaches `program` at `point`; dropping the result detaches it.
pub(crate) fn attach(program: BorrowedFd, point: &AttachPoint) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    let (hook, kind) = match point {
        AttachPoint::Egress(index) => (index.cast_signed(), libbpf_sys::BPF_TCX_EGRESS),
        AttachPoint::Ingress(index) => (index.cast_signed(), libbpf_sys::BPF_TCX_INGRESS),
        AttachPoint::CgroupEgress(cgroup) => {
            (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_INET_EGRESS)
        }
        AttachPoint::CgroupIngress(cgroup) => {
            (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_INET_INGRESS)
        }
        AttachPoint::SockOps(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_SOCK_OPS),
        AttachPoint::SetSockOpt(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT),
        AttachPoint::GetSockOpt(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_GETSOCKOPT),
        AttachPoint::Iterator(map) => {
            if let Some(map) = map {
                info.map.map_fd = map.as_raw_fd().cast_unsigned();
                options.iter_info = &raw mut info;
                options.iter_info_len = size_of_val(&info) as u32;
            }
            (0, libbpf_sys::BPF_TRACE_ITER)
        }
    };
    if matches!(point, AttachPoint::Egress(_) | AttachPoint::Ingress(_)) {
        // Another program may end the chain (TCX_PASS), so that later ones see nothing.
        options.flags = libbpf_sys::BPF_F_BEFORE;
    }
    // SAFETY: the options, and the iterator's description they point to, outlive the call.
    let fd =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), hook, kind, &raw const options) };
    owned_fd(fd)
}

/// Detaches a link's program immediately, even if a starting child process has a copy of the link,
/// which closing would not do.
pub(crate) fn detach(link: OwnedFd) {
    // SAFETY: a plain system call on a file descriptor. Where it fails, closing is left.
    unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
}

/// False if the link's device is gone, or others have detached the link.
pub(crate) fn has_device(link: BorrowedFd) -> bool {
    // SAFETY: plain integers; the kernel sets this member for a tcx link.
    info(link).is_some_and(|info| unsafe { info.__bindgen_anon_1.tcx.ifindex } != 0)
}

/// Returns the id of a program that runs before this tcx link's, in the calling thread's network
/// namespace.
pub(crate) fn preceding_program(link: BorrowedFd) -> Option<u32> {
    /// The kernel's limit for each direction of a device.
    const MAX_PROGRAMS: usize = 64;
    let info = info(link)?;
    // SAFETY: plain integers; the kernel sets this member for a tcx link.
    let tcx = unsafe { info.__bindgen_anon_1.tcx };
    let mut programs = [0; MAX_PROGRAMS];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = MAX_PROGRAMS as u32;
    let device = tcx.ifindex.cast_signed();
    // SAFETY: the options, and the list they point to, outlive the call.
    let result =
        unsafe { libbpf_sys::bpf_prog_query_opts(device, tcx.attach_type, &raw mut options) };
    let [first, ..] = programs;
    (result == 0 && first != info.prog_id).then_some(first)
}

/// False if the link's cgroup is gone, or others have detached the link.
pub(crate) fn has_cgroup(link: BorrowedFd) -> bool {
    // SAFETY: plain integers; the kernel sets this member for a link to a cgroup.
    info(link).is_some_and(|info| unsafe { info.__bindgen_anon_1.cgroup.cgroup_id } != 0)
}

/// True if the file is a link of a program that sees arriving packets.
pub(crate) fn is_at_ingress(file: BorrowedFd) -> bool {
    let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // The kernel describes programs and maps by the same call, in other structures.
    let is_link = name.is_ok_and(|name| name == Path::new("anon_inode:bpf_link"));
    let info = is_link.then(|| info(file)).flatten();
    info.is_some_and(|info| {
        let at = info.__bindgen_anon_1;
        // SAFETY: the kernel has filled in the part of the link's own type.
        unsafe {
            match info.type_ {
                libbpf_sys::BPF_LINK_TYPE_TCX => at.tcx.attach_type == libbpf_sys::BPF_TCX_INGRESS,
                libbpf_sys::BPF_LINK_TYPE_CGROUP => {
                    at.cgroup.attach_type == libbpf_sys::BPF_CGROUP_INET_INGRESS
                }
                _ => false,
            }
        }
    })
}

fn info(link: BorrowedFd) -> Option<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: a system call that writes no more than the length stated.
    let result = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut length)
    };
    (result == 0).then_some(info)
}

/// Runs an attached iterator, in the calling thread's namespaces; returns what its program writes.
pub(crate) fn run_iterator(link: BorrowedFd) -> io::Result<Vec<u8>> {
    /// More bytes than the kernel's own buffer has (32 KiB). When a read continues after an earlier
    /// one, it may miss an object if another was removed meanwhile.
    const READ_BYTES: usize = 1 << 16;
    // SAFETY: a plain system call on a file descriptor.
    let run = owned_fd(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
    let mut run = File::from(run);
    let mut written = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        match run.read(&mut chunk) {
            Ok(0) => return Ok(written),
            Ok(length) => written.extend_from_slice(&chunk[..length]),
            // The kernel stops after a million objects in a row without output, and continues from
            // there.
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The file descriptor that libbpf returned, or the error that it stands for.
pub(crate) fn owned_fd(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: libbpf returned a new file descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
