//! The programs' links to their cgroup.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::link::{AttachPoint, attach, detach, has_cgroup};
use crate::{Error, Programs};

/// The programs at their cgroup.
#[derive(Debug)]
pub(crate) struct CgroupLinks {
    cgroup: OwnedFd,
    all: Vec<(CgroupHook, OwnedFd)>,
}

/// Attachment point of a program at a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupHook {
    Egress,
    Ingress,
    SockOps,
    SetSockOpt,
    GetSockOpt,
}

impl CgroupHook {
    /// The program for ACKs is attached before the one that announces bundles, and sockops after
    /// both: a connection is bundled from its first byte or not at all.
    const ALL: [Self; 5] = [
        Self::Ingress,
        Self::Egress,
        Self::SockOps,
        Self::SetSockOpt,
        Self::GetSockOpt,
    ];

    /// The program for this hook, if the kernel supports it.
    fn program(self, programs: &Programs) -> Option<&OwnedFd> {
        match self {
            Self::Egress => Some(&programs.transmit),
            Self::Ingress => Some(&programs.ingress),
            Self::SockOps => Some(&programs.sockops),
            Self::SetSockOpt => programs.setsockopt.as_ref(),
            Self::GetSockOpt => programs.getsockopt.as_ref(),
        }
    }

    fn attach_point(self, cgroup: BorrowedFd<'_>) -> AttachPoint<'_> {
        match self {
            Self::Egress => AttachPoint::CgroupEgress(cgroup),
            Self::Ingress => AttachPoint::CgroupIngress(cgroup),
            Self::SockOps => AttachPoint::SockOps(cgroup),
            Self::SetSockOpt => AttachPoint::SetSockOpt(cgroup),
            Self::GetSockOpt => AttachPoint::GetSockOpt(cgroup),
        }
    }
}

impl CgroupLinks {
    /// Attaches the programs to a cgroup.
    pub(crate) fn attach_all(programs: &Programs, cgroup: BorrowedFd) -> Result<Self, Error> {
        let mut links = Self {
            cgroup: cgroup.try_clone_to_owned().map_err(cgroup_error)?,
            all: Vec::new(),
        };
        links.attach_missing(programs)?;
        Ok(links)
    }

    /// Drops links that others have detached; true if there were any. Without the program for ACKs,
    /// the one that announces bundles is detached as well, because losses would go unnoticed.
    pub(crate) fn drop_detached(&mut self) -> bool {
        let before = self.all.len();
        self.all.retain(|(_, link)| has_cgroup(link.as_fd()));
        if !self
            .all
            .iter()
            .any(|(hook, _)| *hook == CgroupHook::Ingress)
        {
            let is_egress = |(hook, _): &mut (CgroupHook, OwnedFd)| *hook == CgroupHook::Egress;
            for (_, link) in self.all.extract_if(.., is_egress) {
                detach(link);
            }
        }
        self.all.len() < before
    }

    /// Attaches the programs that are not attached.
    pub(crate) fn attach_missing(&mut self, programs: &Programs) -> Result<(), Error> {
        for hook in CgroupHook::ALL {
            let is_attached = self.all.iter().any(|(existing, _)| *existing == hook);
            if let (false, Some(program)) = (is_attached, hook.program(programs)) {
                let point = hook.attach_point(self.cgroup.as_fd());
                let link = attach(program.as_fd(), &point).map_err(cgroup_error)?;
                self.all.push((hook, link));
            }
        }
        Ok(())
    }

    /// Detaches the programs immediately.
    pub(crate) fn detach(&mut self) {
        for (_, link) in self.all.drain(..) {
            detach(link);
        }
    }
}

/// The error of attaching to the cgroup. EPERM here means an exclusive program, because loading was
/// permitted.
pub(crate) fn cgroup_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::CgroupTaken,
        _ => Error::system("attach to the cgroup", error),
    }
}
