//! Links attach a program to its hook in the kernel until their last file descriptor is closed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Where a program is put.
pub(crate) enum Target<'a> {
    /// A device's egress (tcx), by interface index, behind programs already there.
    Egress(u32),
    /// A device's ingress (tcx), by interface index, behind programs already there.
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

/// Attaches `program`; dropping the result detaches it.
pub(crate) fn attach(program: BorrowedFd, target: &Target) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    let (place, kind) = match target {
        Target::Egress(index) => (index.cast_signed(), libbpf_sys::BPF_TCX_EGRESS),
        Target::Ingress(index) => (index.cast_signed(), libbpf_sys::BPF_TCX_INGRESS),
        Target::CgroupEgress(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_INET_EGRESS),
        Target::CgroupIngress(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_INET_INGRESS),
        Target::SockOps(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_SOCK_OPS),
        Target::SetSockOpt(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT),
        Target::GetSockOpt(cgroup) => (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_GETSOCKOPT),
        Target::Iterator(map) => {
            if let Some(map) = map {
                info.map.map_fd = map.as_raw_fd().cast_unsigned();
                options.iter_info = &raw mut info;
                options.iter_info_len = size_of_val(&info) as u32;
            }
            (0, libbpf_sys::BPF_TRACE_ITER)
        }
    };
    // SAFETY: the options, and the iterator's description they point to, outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), place, kind, &raw const options)
    };
    own(fd)
}

/// Detaches a link's program at once, even if a child process that is just being started has a copy
/// of the link; to close it would not do that.
pub(crate) fn detach(link: OwnedFd) {
    // SAFETY: a plain system call on a file descriptor. Where it fails, closing is left.
    unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
}

/// False if the link's device is gone, or others have detached the link.
pub(crate) fn has_device(link: BorrowedFd) -> bool {
    // SAFETY: of a tcx link, the kernel has filled in this part.
    info(link).is_some_and(|info| unsafe { info.__bindgen_anon_1.tcx.ifindex } != 0)
}

/// False if the link's cgroup is gone, or others have detached the link.
pub(crate) fn has_cgroup(link: BorrowedFd) -> bool {
    // SAFETY: of a link to a cgroup, the kernel has filled in this part.
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
    /// Bytes, more than the kernel's own buffer has (32 KiB): where it goes on after what was read
    /// before, it may miss an object, for another that was gone through has ended meanwhile.
    const AT_ONCE: usize = 1 << 16;
    // SAFETY: a plain system call on a file descriptor.
    let run = own(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
    let mut run = File::from(run);
    let mut written = Vec::new();
    let mut part = vec![0; AT_ONCE];
    loop {
        match run.read(&mut part) {
            Ok(0) => return Ok(written),
            Ok(length) => written.extend_from_slice(&part[..length]),
            // The kernel breaks off where a million objects in a row had nothing to be written, and
            // goes on from there.
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The file descriptor that libbpf returned, or the error that it stands for.
pub(crate) fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: libbpf returned a new file descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
