//! The programs at the cgroup, and that they stay there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::link::{self, Target};
use crate::{Error, Programs};

/// The programs at their cgroup.
#[derive(Debug)]
pub(crate) struct CgroupLinks {
    cgroup: OwnedFd,
    all: Vec<(Place, OwnedFd)>,
}

/// Where in a cgroup a program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Egress,
    Ingress,
    SockOps,
    SetSockOpt,
    GetSockOpt,
}

impl Place {
    /// What sees ACKs comes before what announces bundles, and connections after their packets: each
    /// is bundled from its first byte or not at all.
    const ALL: [Self; 5] = [
        Self::Ingress,
        Self::Egress,
        Self::SockOps,
        Self::SetSockOpt,
        Self::GetSockOpt,
    ];

    /// The program that stands there, if the kernel has what it needs.
    fn program(self, programs: &Programs) -> Option<&OwnedFd> {
        match self {
            Self::Egress => Some(&programs.transmit),
            Self::Ingress => Some(&programs.ingress),
            Self::SockOps => Some(&programs.sockops),
            Self::SetSockOpt => programs.setsockopt.as_ref(),
            Self::GetSockOpt => programs.getsockopt.as_ref(),
        }
    }

    fn of(self, cgroup: BorrowedFd<'_>) -> Target<'_> {
        match self {
            Self::Egress => Target::CgroupEgress(cgroup),
            Self::Ingress => Target::CgroupIngress(cgroup),
            Self::SockOps => Target::SockOps(cgroup),
            Self::SetSockOpt => Target::SetSockOpt(cgroup),
            Self::GetSockOpt => Target::GetSockOpt(cgroup),
        }
    }
}

impl CgroupLinks {
    /// Attaches the programs to a cgroup.
    pub(crate) fn begin(programs: &Programs, cgroup: BorrowedFd) -> Result<Self, Error> {
        let mut links = Self {
            cgroup: cgroup.try_clone_to_owned().map_err(error)?,
            all: Vec::new(),
        };
        links.attach_the_missing(programs)?;
        Ok(links)
    }

    /// Lets go of the links that others have detached; true if there are any. Where what sees ACKs is
    /// among them, what announces bundles is detached as well: of those no loss would be seen.
    pub(crate) fn drop_the_detached(&mut self) -> bool {
        let before = self.all.len();
        self.all.retain(|(_, link)| link::has_cgroup(link.as_fd()));
        if !self.all.iter().any(|(place, _)| *place == Place::Ingress) {
            let announcing = |(place, _): &mut (Place, OwnedFd)| *place == Place::Egress;
            for (_, link) in self.all.extract_if(.., announcing) {
                link::detach(link);
            }
        }
        self.all.len() < before
    }

    /// Attaches the programs that are not.
    pub(crate) fn attach_the_missing(&mut self, programs: &Programs) -> Result<(), Error> {
        for place in Place::ALL {
            let is_there = self.all.iter().any(|(there, _)| *there == place);
            if let (false, Some(program)) = (is_there, place.program(programs)) {
                let target = place.of(self.cgroup.as_fd());
                let link = link::attach(program.as_fd(), &target).map_err(error)?;
                self.all.push((place, link));
            }
        }
        Ok(())
    }

    /// Detaches the programs at once.
    pub(crate) fn detach(&mut self) {
        for (_, link) in self.all.drain(..) {
            link::detach(link);
        }
    }
}

/// The error of attaching to the cgroup. Who may load the programs may attach them as well.
pub(crate) fn error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::CgroupTaken,
        _ => Error::system("attach to the cgroup", error),
    }
}
