//! What is remembered of sockets takes some of the places (`bpf/bundler/policy/quota.h`). Of such sockets there
//! may be many more than of connections: where the kernel lets a program go through them, that counts.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::link::{self, Target};
use crate::places::{ALL_USERS, Kept, counts, failed, of_map};
use crate::{Error, Namespace};

#[derive(Debug)]
pub(crate) enum RequestShares {
    /// A program counts them, into this map.
    Counted { link: OwnedFd, there: MapHandle },
    /// Programs tell of each.
    Told(Kept),
}

impl RequestShares {
    /// Those of all requests that `map` keeps, as a program counts them into `there`.
    pub(crate) fn counted(
        program: BorrowedFd,
        map: BorrowedFd,
        there: MapHandle,
    ) -> Result<Self, Error> {
        let link = link::attach(program, &Target::Iterator(Some(map))).map_err(failed)?;
        Ok(Self::Counted { link, there })
    }

    /// The shares that are taken now, by user and by [`ALL_USERS`]. Users beyond those that the map has
    /// room for are in the latter alone.
    pub(crate) fn read(&self, namespaces: &[Namespace]) -> Result<HashMap<u32, u64>, Error> {
        let (link, there) = match self {
            Self::Told(kept) => return Ok(sum(&kept.read(namespaces)?)),
            Self::Counted { link, there } => (link, there),
        };
        let known: Vec<_> = there.keys().collect();
        for user in known {
            there.delete(&user).map_err(of_map)?;
        }
        let none = 0u64.to_ne_bytes();
        let all = ALL_USERS.to_ne_bytes();
        there.update(&all, &none, MapFlags::ANY).map_err(of_map)?;
        link::run_iterator(link.as_fd()).map_err(failed)?;
        Ok(counts(there)?.into_iter().filter(|it| it.1 > 0).collect())
    }
}

/// What sockets take, by user and by [`ALL_USERS`].
pub(crate) fn sum(sockets: &[types::kept]) -> HashMap<u32, u64> {
    let mut shares = HashMap::new();
    for socket in sockets {
        let share = u64::from(socket.share);
        *shares.entry(socket.uid).or_default() += share;
        *shares.entry(ALL_USERS).or_default() += share;
    }
    shares
}
