//! How many sockets the programs keep something for (`bpf/bundler/policy/quota.h`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::link::{self, Target};
use crate::socket_iter::Walk;
use crate::{Change, Error, Namespace};

/// The key in both maps that stands for all users together.
pub(crate) const ALL_USERS: u32 = types::all_users::ALL_USERS.0;

/// What a bundled connection takes of the places.
const CONNECTION_SHARE: u64 = types::share::CONNECTION_SHARE.0 as u64;

/// The programs' account of the places taken; it does not tell which of these are free again.
#[derive(Debug)]
pub(crate) struct Places {
    come: MapHandle,
    gone: MapHandle,
    connections: Kept,
    /// Sockets of whose applications or rules something is remembered.
    requests: RequestShares,
    most: u32,
    /// The shares that had been taken at the last look; `None` if there was a crowd.
    quiet_at: Option<u64>,
}

impl Places {
    pub(crate) fn new(
        come: MapHandle,
        gone: MapHandle,
        connections: Kept,
        requests: RequestShares,
        most: u32,
    ) -> Self {
        Self {
            come,
            gone,
            connections,
            requests,
            most,
            quiet_at: None,
        }
    }

    /// Looks how many places are still taken, if that is worth while: if `always`, or if as many as
    /// half of what a user may have could be there. What comes meanwhile counts twice at worst,
    /// until the next time. True if a user has no place left, or all together have none.
    pub(crate) fn recount(
        &mut self,
        always: bool,
        namespaces: &[Namespace],
    ) -> Result<bool, Error> {
        let come_in_all = count_of(&self.come, ALL_USERS)?;
        if !always && self.quiet_at == Some(come_in_all) {
            return Ok(false);
        }
        let come = counts(&self.come)?;
        let gone: HashMap<_, _> = counts(&self.gone)?.into_iter().collect();
        let is_crowded = |(uid, come): &(u32, u64)| {
            let gone = gone.get(uid).copied().unwrap_or(0);
            come.wrapping_sub(gone) >= self.most_of(*uid) / 2
        };
        let quiet = !come.iter().any(is_crowded);
        self.quiet_at = quiet.then_some(come_in_all);
        if quiet && !always {
            return Ok(false);
        }
        let kept = self.kept(namespaces)?;
        let mut is_full = false;
        for (uid, come) in come {
            let kept = kept.get(&uid).copied().unwrap_or(0);
            is_full |= kept + CONNECTION_SHARE > self.most_of(uid);
            let gone = come.wrapping_sub(kept);
            self.gone
                .update(&uid.to_ne_bytes(), &gone.to_ne_bytes(), MapFlags::ANY)
                .map_err(of_map)?;
        }
        Ok(is_full)
    }

    /// The connections that have a place.
    pub(crate) fn connections(&self) -> io::Result<Kept> {
        self.connections.try_clone()
    }

    /// True if nothing is kept for any socket.
    pub(crate) fn are_free(&self, namespaces: &[Namespace]) -> Result<bool, Error> {
        Ok(self.kept(namespaces)?.is_empty())
    }

    /// As [`Places::new`], with an account that is empty again.
    pub(crate) fn begin_anew(&mut self) {
        self.quiet_at = None;
    }

    /// Takes what another pillion has left for come here. To be called before the programs are at work.
    pub(crate) fn take_over(&self, namespaces: &[Namespace]) -> Result<(), Error> {
        let mut left: Vec<_> = self.kept(namespaces)?.into_iter().collect();
        left.sort_by_key(|(uid, _)| *uid != ALL_USERS);
        for (uid, come) in left {
            let (uid, come) = (uid.to_ne_bytes(), come.to_ne_bytes());
            match self.come.update(&uid, &come, MapFlags::ANY) {
                // Of more users, all together are bounded alone.
                Err(error) if error.kind() == ErrorKind::TooBig => break,
                stored => stored.map_err(of_map)?,
            }
        }
        Ok(())
    }

    /// Waits until no connection has packets on their way, but no longer than `patience`.
    pub(crate) fn await_acknowledged(&self, namespaces: &[Namespace], patience: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let begun = Instant::now();
        let waits = |kept: Vec<types::kept>| kept.iter().any(|it| it.packets_out > 0);
        let wait = || self.connections.read(namespaces).is_ok_and(waits);
        while begun.elapsed() < patience && wait() {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn most_of(&self, uid: u32) -> u64 {
        let in_all = u64::from(self.most) * CONNECTION_SHARE;
        match uid {
            ALL_USERS => in_all,
            _ => in_all / 2,
        }
    }

    /// The shares that are taken, by user and by [`ALL_USERS`].
    fn kept(&self, namespaces: &[Namespace]) -> Result<HashMap<u32, u64>, Error> {
        let mut kept = sum(&self.connections.read(namespaces)?);
        for (uid, shares) in self.requests.read(namespaces)? {
            *kept.entry(uid).or_default() += shares;
        }
        Ok(kept)
    }
}

/// The sockets for which something is kept.
#[derive(Debug)]
pub(crate) struct Kept(Walk);

impl Kept {
    pub(crate) fn by(walk: Walk) -> Self {
        Self(walk)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// All of them; on kernels that refuse to go through storage, those that no process has open in
    /// these `namespaces` alone.
    pub(crate) fn read(&self, namespaces: &[Namespace]) -> Result<Vec<types::kept>, Error> {
        let told = self.0.read::<{ size_of::<types::kept>() }>(namespaces)?;
        // SAFETY: plain integers, of which any bits are valid.
        let sockets = told
            .iter()
            .map(|it| unsafe { it.as_ptr().cast::<types::kept>().read_unaligned() });
        Ok(sockets.collect())
    }
}

/// Each user and the number kept for it in a map.
pub(crate) fn counts(map: &MapHandle) -> Result<Vec<(u32, u64)>, Error> {
    let users = map.keys().filter_map(|user| user.try_into().ok());
    let users: Vec<_> = users.map(u32::from_ne_bytes).collect();
    let counts = users.into_iter().map(|uid| Ok((uid, count_of(map, uid)?)));
    counts.collect()
}

/// A user's number in a map; 0 if none is kept.
fn count_of(map: &MapHandle, uid: u32) -> Result<u64, Error> {
    let value = map.lookup(&uid.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(of_map)?.map(<[u8; 8]>::try_from);
    Ok(value.map_or(0, |value| value.map_or(0, u64::from_ne_bytes)))
}

/// Time between two tries to take in the connections that found no place; each goes through all
/// connections of the host.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// Whether there is room for all connections.
#[derive(Debug, Default)]
pub(crate) struct Room {
    tried: Option<Instant>,
    /// How often a connection had found no place when that was last looked into.
    refused: u64,
    is_full: bool,
}

impl Room {
    /// True if there may be no room, or if the count of connections `refused` a place has changed.
    pub(crate) fn is_wanted(&self, refused: u64) -> bool {
        self.is_full || refused != self.refused
    }

    /// True if it is time to try again the connections that found no place.
    pub(crate) fn try_again(&mut self) -> bool {
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= TRY_EVERY);
        if is_due {
            self.tried = Some(Instant::now());
        }
        is_due
    }

    /// Takes note that those left out were tried again, and how often a place had been `refused`
    /// before that was begun.
    pub(crate) fn looked_into(&mut self, refused: u64) {
        self.refused = refused;
    }

    /// Takes note of whether all places are taken; tells if that has changed.
    pub(crate) fn note(&mut self, is_full: bool) -> Option<Change> {
        let was_full = std::mem::replace(&mut self.is_full, is_full);
        match (was_full, is_full) {
            (false, true) => Some(Change::Full),
            (true, false) => Some(Change::Room),
            _ => None,
        }
    }
}

pub(crate) fn failed(error: io::Error) -> Error {
    Error::system("count the connections", error)
}

pub(crate) fn of_map(error: libbpf_rs::Error) -> Error {
    failed(io::Error::other(error.to_string()))
}

/// The places that remembered requests take. Of their sockets there may be many more than of
/// connections: where the kernel lets a program go through them, that counts.
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
