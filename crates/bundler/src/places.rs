//! How many sockets the programs keep something for (`bpf/places.h`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::link::{self, Target};
use crate::{Change, Error};

/// Stands for all users together.
const ALL_USERS: u32 = u32::MAX;

/// The programs' account of them, which knows of none that it has ended.
#[derive(Debug)]
pub(crate) struct Places {
    come: MapHandle,
    gone: MapHandle,
    /// Iterators over what is kept: of connections, and of what applications asked for.
    kept: [OwnedFd; 2],
}

impl Places {
    pub(crate) fn new(
        come: MapHandle,
        gone: MapHandle,
        users: &OwnedFd,
        kept: [&MapHandle; 2],
    ) -> Result<Self, Error> {
        let over = |map: &MapHandle| {
            let target = Target::Iterator(Some(map.as_fd()));
            link::attach(users.as_fd(), &target).map_err(failed)
        };
        let [connections, wishes] = kept;
        Ok(Self {
            come,
            gone,
            kept: [over(connections)?, over(wishes)?],
        })
    }

    /// Looks how many there are still. What comes meanwhile counts twice at worst, until the next
    /// time.
    pub(crate) fn recount(&self) -> Result<(), Error> {
        let users: Vec<_> = self.come.keys().collect();
        let mut come = Vec::with_capacity(users.len());
        for user in users {
            let value = self.come.lookup(&user, MapFlags::ANY).map_err(of_map)?;
            if let (Ok(uid), Some(Ok(count))) = (user.try_into(), value.map(<[u8; 8]>::try_from)) {
                come.push((u32::from_ne_bytes(uid), u64::from_ne_bytes(count)));
            }
        }
        let kept = self.kept()?;
        for (uid, come) in come {
            let gone = come.wrapping_sub(kept.get(&uid).copied().unwrap_or(0));
            self.gone
                .update(&uid.to_ne_bytes(), &gone.to_ne_bytes(), MapFlags::ANY)
                .map_err(of_map)?;
        }
        Ok(())
    }

    /// Those that are there, by their users.
    fn kept(&self) -> Result<HashMap<u32, u64>, Error> {
        let mut kept = HashMap::new();
        for iterator in &self.kept {
            let mut users = Vec::new();
            let run = link::run_iterator(iterator.as_fd()).map_err(failed)?;
            File::from(run).read_to_end(&mut users).map_err(failed)?;
            for user in users.as_chunks().0 {
                *kept.entry(u32::from_ne_bytes(*user)).or_default() += 1;
                *kept.entry(ALL_USERS).or_default() += 1;
            }
        }
        Ok(kept)
    }
}

/// Between two looks at how many there are, which goes through all connections of the host.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Is there room for all?
#[derive(Debug, Default)]
pub(crate) struct Room {
    looked: Option<Instant>,
    /// How often one had found no place by then.
    refused: u64,
    is_full: bool,
}

impl Room {
    /// Is it time for a look? One had found no place so often by now.
    pub(crate) fn look(&mut self, refused: u64) -> bool {
        let is_due = self
            .looked
            .is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        let looks = is_due && (self.is_full || refused != self.refused);
        if looks {
            self.looked = Some(Instant::now());
        }
        looks
    }

    /// One had found no place so often before those left out were tried again, and so often
    /// afterwards.
    pub(crate) fn note(&mut self, before: u64, afterwards: u64) -> Option<Change> {
        let was_full = std::mem::replace(&mut self.is_full, before != afterwards);
        self.refused = afterwards;
        match (was_full, self.is_full) {
            (false, true) => Some(Change::Full),
            (true, false) => Some(Change::Room),
            _ => None,
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("count the connections", error)
}

fn of_map(error: libbpf_rs::Error) -> Error {
    failed(io::Error::other(error.to_string()))
}
