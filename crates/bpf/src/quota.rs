//! The quota of sockets with stored state (`bpf/bundler/policy/quota.h`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::link::{self, AttachPoint};
use crate::socket_iter::SocketIter;
use crate::{Change, Error, Namespace};

/// The key for the sum over all users, in both maps.
pub(crate) const ALL_USERS: u32 = types::all_users::ALL_USERS.0;

/// Share of a slot that a bundled connection takes, in sixteenths.
const CONNECTION_SLOT_SHARE: u64 = types::slot_share::CONNECTION_SLOT_SHARE.0 as u64;

/// The programs' account of taken slots; it does not include which of these are free again.
#[derive(Debug)]
pub(crate) struct Quota {
    taken: MapHandle,
    freed: MapHandle,
    connections: SocketEntries,
    /// Sockets with a stored request of their application or decision of a rule.
    requests: RequestShares,
    max_connections: u32,
    /// Shares taken at the last recount; `None` if a user was near the limit then.
    taken_at_quiet_recount: Option<u64>,
}

impl Quota {
    pub(crate) fn new(
        taken: MapHandle,
        freed: MapHandle,
        connections: SocketEntries,
        requests: RequestShares,
        max_connections: u32,
    ) -> Self {
        Self {
            taken,
            freed,
            connections,
            requests,
            max_connections,
            taken_at_quiet_recount: None,
        }
    }

    /// Counts the taken slots, if `always`, or if at least half of a user's limit could be taken. A
    /// socket added meanwhile counts twice until the next count. Returns true if a user, or all
    /// together, have no free slot.
    pub(crate) fn recount(
        &mut self,
        always: bool,
        namespaces: &[Namespace],
    ) -> Result<bool, Error> {
        let total_taken = count_of(&self.taken, ALL_USERS)?;
        if !always && self.taken_at_quiet_recount == Some(total_taken) {
            return Ok(false);
        }
        let taken = counts(&self.taken)?;
        let freed: HashMap<_, _> = counts(&self.freed)?.into_iter().collect();
        let is_near_limit = |(uid, taken): &(u32, u64)| {
            let freed = freed.get(uid).copied().unwrap_or(0);
            taken.wrapping_sub(freed) >= self.limit_of(*uid) / 2
        };
        let is_quiet = !taken.iter().any(is_near_limit);
        self.taken_at_quiet_recount = is_quiet.then_some(total_taken);
        if is_quiet && !always {
            return Ok(false);
        }
        let entries = self.entries(namespaces)?;
        let mut is_full = false;
        for (uid, taken) in taken {
            let entries = entries.get(&uid).copied().unwrap_or(0);
            is_full |= entries + CONNECTION_SLOT_SHARE > self.limit_of(uid);
            let freed = taken.wrapping_sub(entries);
            self.freed
                .update(&uid.to_ne_bytes(), &freed.to_ne_bytes(), MapFlags::ANY)
                .map_err(map_error)?;
        }
        Ok(is_full)
    }

    /// The bundled connections.
    pub(crate) fn connections(&self) -> io::Result<SocketEntries> {
        self.connections.try_clone()
    }

    /// True if no state of any socket is stored.
    pub(crate) fn is_empty(&self, namespaces: &[Namespace]) -> Result<bool, Error> {
        Ok(self.entries(namespaces)?.is_empty())
    }

    /// Resets it to the state after [`Quota::new`]; the maps must already be empty.
    pub(crate) fn reset(&mut self) {
        self.taken_at_quiet_recount = None;
    }

    /// Imports the requests of another pillion into this account. Call it before the programs are
    /// attached.
    pub(crate) fn import(&self, namespaces: &[Namespace]) -> Result<(), Error> {
        let mut inherited: Vec<_> = self.entries(namespaces)?.into_iter().collect();
        inherited.sort_by_key(|(uid, _)| *uid != ALL_USERS);
        for (uid, taken) in inherited {
            let (uid, taken) = (uid.to_ne_bytes(), taken.to_ne_bytes());
            match self.taken.update(&uid, &taken, MapFlags::ANY) {
                // Further users are limited only in total.
                Err(error) if error.kind() == ErrorKind::TooBig => break,
                stored => stored.map_err(map_error)?,
            }
        }
        Ok(())
    }

    /// Waits until no connection has unacknowledged packets, at most `timeout`.
    pub(crate) fn wait_for_acks(&self, namespaces: &[Namespace], timeout: Duration) {
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let started = Instant::now();
        let has_unacked =
            |entries: Vec<types::socket_entry>| entries.iter().any(|it| it.packets_out > 0);
        let is_waiting = || self.connections.read(namespaces).is_ok_and(has_unacked);
        while started.elapsed() < timeout && is_waiting() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn limit_of(&self, uid: u32) -> u64 {
        let total = u64::from(self.max_connections) * CONNECTION_SLOT_SHARE;
        match uid {
            ALL_USERS => total,
            _ => total / 2,
        }
    }

    /// Taken shares by user, and their sum under [`ALL_USERS`].
    fn entries(&self, namespaces: &[Namespace]) -> Result<HashMap<u32, u64>, Error> {
        let mut entries = sum_shares(&self.connections.read(namespaces)?);
        for (uid, shares) in self.requests.read(namespaces)? {
            *entries.entry(uid).or_default() += shares;
        }
        Ok(entries)
    }
}

/// The sockets with stored state.
#[derive(Debug)]
pub(crate) struct SocketEntries(SocketIter);

impl SocketEntries {
    pub(crate) fn new(iterator: SocketIter) -> Self {
        Self(iterator)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// All entries; without storage iterators, closed sockets only in these `namespaces`.
    pub(crate) fn read(&self, namespaces: &[Namespace]) -> Result<Vec<types::socket_entry>, Error> {
        let records = self
            .0
            .read::<{ size_of::<types::socket_entry>() }>(namespaces)?;
        // SAFETY: plain integers, of which any bits are valid.
        let sockets = records
            .iter()
            .map(|it| unsafe { it.as_ptr().cast::<types::socket_entry>().read_unaligned() });
        Ok(sockets.collect())
    }
}

/// The numbers in a map by user.
pub(crate) fn counts(map: &MapHandle) -> Result<Vec<(u32, u64)>, Error> {
    let users = map.keys().filter_map(|user| user.try_into().ok());
    let users: Vec<_> = users.map(u32::from_ne_bytes).collect();
    let counts = users.into_iter().map(|uid| Ok((uid, count_of(map, uid)?)));
    counts.collect()
}

/// A user's number in a map; 0 if missing.
fn count_of(map: &MapHandle, uid: u32) -> Result<u64, Error> {
    let value = map.lookup(&uid.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(map_error)?.map(<[u8; 8]>::try_from);
    Ok(value.map_or(0, |value| value.map_or(0, u64::from_ne_bytes)))
}

/// Time between two tries to add connections without a slot; each try iterates over all connections
/// of the host.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// State of the retries for connections without a slot.
#[derive(Debug, Default)]
pub(crate) struct SlotRetry {
    last_try: Option<Instant>,
    /// Connection limit hits when they were last handled.
    limit_hits: u64,
    /// True if connections were refused again when they were last handled.
    has_refused: bool,
    is_full: bool,
}

impl SlotRetry {
    /// True if all slots are taken, or if connections were refused again when they were last handled.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_full || self.has_refused
    }

    /// True if the slots may be exhausted, or if the number of `limit_hits` has changed.
    pub(crate) fn needs_count(&self, limit_hits: u64) -> bool {
        self.is_exhausted() || limit_hits != self.limit_hits
    }

    /// Starts a retry if the last one is [`RETRY_INTERVAL`] ago; true if it started.
    pub(crate) fn try_start(&mut self) -> bool {
        let is_due = self
            .last_try
            .is_none_or(|last_try| last_try.elapsed() >= RETRY_INTERVAL);
        if is_due {
            self.last_try = Some(Instant::now());
        }
        is_due
    }

    /// Records that connections without a slot were tried again, how many were `refused`, and the
    /// number of `limit_hits` before that.
    pub(crate) fn set_handled(&mut self, limit_hits: u64, refused: usize) {
        self.limit_hits = limit_hits;
        self.has_refused = refused > 0;
    }

    /// Records whether all slots are taken; returns a change.
    pub(crate) fn set_full(&mut self, is_full: bool) -> Option<Change> {
        let was_full = std::mem::replace(&mut self.is_full, is_full);
        match (was_full, is_full) {
            (false, true) => Some(Change::LimitReached),
            (true, false) => Some(Change::BelowLimit),
            _ => None,
        }
    }
}

pub(crate) fn count_error(error: io::Error) -> Error {
    Error::system("count the connections", error)
}

pub(crate) fn map_error(error: libbpf_rs::Error) -> Error {
    count_error(io::Error::other(error.to_string()))
}

/// The slots of stored requests. Requests may be far more than connections, so a program counts
/// them if the kernel permits.
#[derive(Debug)]
pub(crate) enum RequestShares {
    /// A program counts them, into this map.
    Counted { link: OwnedFd, present: MapHandle },
    /// Programs list each socket.
    Listed(SocketEntries),
}

impl RequestShares {
    /// Counts the requests in `map` by a program, into `present`.
    pub(crate) fn counted(
        program: BorrowedFd,
        map: BorrowedFd,
        present: MapHandle,
    ) -> Result<Self, Error> {
        let link = link::attach(program, &AttachPoint::Iterator(Some(map))).map_err(count_error)?;
        Ok(Self::Counted { link, present })
    }

    /// Taken shares by user, and their sum under [`ALL_USERS`]. Users beyond the map's size are only in
    /// the sum.
    pub(crate) fn read(&self, namespaces: &[Namespace]) -> Result<HashMap<u32, u64>, Error> {
        let (link, present) = match self {
            Self::Listed(entries) => return Ok(sum_shares(&entries.read(namespaces)?)),
            Self::Counted { link, present } => (link, present),
        };
        let old_users: Vec<_> = present.keys().collect();
        for user in old_users {
            present.delete(&user).map_err(map_error)?;
        }
        let none = 0u64.to_ne_bytes();
        let all = ALL_USERS.to_ne_bytes();
        present
            .update(&all, &none, MapFlags::ANY)
            .map_err(map_error)?;
        link::run_iterator(link.as_fd()).map_err(count_error)?;
        Ok(counts(present)?.into_iter().filter(|it| it.1 > 0).collect())
    }
}

/// Shares of sockets by user, and their sum under [`ALL_USERS`].
pub(crate) fn sum_shares(sockets: &[types::socket_entry]) -> HashMap<u32, u64> {
    let mut shares = HashMap::new();
    for socket in sockets {
        let share = u64::from(socket.share);
        *shares.entry(socket.uid).or_default() += share;
        *shares.entry(ALL_USERS).or_default() += share;
    }
    shares
}
