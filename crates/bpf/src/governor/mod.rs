//! The governor: redundancy must never be what fills a queue.
//!
//! For all connections to one peer network together it decides which share of the eligible segments
//! carries redundancy. `bpf/bundler/policy/governor.h` measures and obeys; `network.rs` decides.

mod load;
mod network;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use caps::{CapSet, Capability, CapsHashSet};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use load::Load;
use network::{Allowance, FULL, LOW, Network};
use serde::Serialize;

use crate::Error;
use crate::contract::types;
use crate::host::clock::monotonic;
use crate::policy::bytes;

/// Maximum number of peer networks at a time; further ones have the initial share.
pub(crate) const MAX_NETWORKS: u32 = 16_384;

/// Time between two decisions.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long a network without measurements is remembered: as long as a lowered cap may hold.
const NETWORK_TTL: Duration = network::MAX_CAP_TIME;

/// Networks read with one system call.
const BATCH: u32 = 256;

/// The first bytes of a peer's address, as the kernel has them.
type Key = [u8; size_of::<types::network>()];

/// Decides for all peer networks of one pillion, in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Governor {
    stop: Arc<AtomicBool>,
    /// The last error, until [`Governor::take_error`] returns it.
    failed: Arc<Mutex<Option<Error>>>,
    thread: Option<JoinHandle<Maps>>,
}

impl Governor {
    /// Starts to decide; all networks have the full share at first.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn start(maps: Maps) -> Result<Self, Error> {
        let mut networks = Networks {
            maps,
            all: HashMap::new(),
        };
        networks.decide(monotonic())?;
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(Mutex::new(None));
        let (stopped, failure) = (Arc::clone(&stop), Arc::clone(&failed));
        let decide = move || {
            drop_capabilities();
            while !stopped.load(Ordering::Relaxed) {
                thread::park_timeout(INTERVAL);
                if let Err(error) = networks.decide(monotonic())
                    && let Ok(mut failure) = failure.lock()
                {
                    *failure = Some(error);
                }
            }
            networks.maps
        };
        let thread = thread::Builder::new().name("governor".to_owned());
        let thread = thread.spawn(decide);
        Ok(Self {
            stop,
            failed,
            thread: Some(thread.map_err(|error| Error::system("start the governor", error))?),
        })
    }

    /// Returns the last failure, once.
    ///
    /// # Errors
    /// The last failure since the previous call, or the end of the thread. If decisions stop for 1 s, the
    /// kernel limits the share to 1/8.
    pub(crate) fn take_error(&self) -> Result<(), Error> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let why = io::Error::other("its thread has ended");
            return Err(Error::system("govern redundancy", why));
        }
        let failed = self.failed.lock().ok().and_then(|mut it| it.take());
        failed.map_or(Ok(()), Err)
    }

    /// Decides no more, and gives the maps back.
    pub(crate) fn stop(mut self) -> Option<Maps> {
        self.end()
    }

    fn end(&mut self) -> Option<Maps> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.end();
    }
}

/// The kernel's maps of the governor (`bpf/bundler/policy/governor.h`).
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) loads: MapHandle,
    pub(crate) allowances: MapHandle,
    pub(crate) governor: MapHandle,
}

/// The peer networks of one pillion.
struct Networks {
    maps: Maps,
    all: HashMap<Key, Network>,
}

impl Networks {
    /// Decides for every network. An error in storing one does not stop the others.
    fn decide(&mut self, now: Duration) -> Result<(), Error> {
        let (loads, mut take_error) = self.read();
        let loads = loads.into_iter();
        let loads = loads.filter_map(|(key, raw)| Some((key, Load::from_raw(&raw)?)));
        let initial = self.initial(now);
        for (key, allowance) in decide(&mut self.all, loads, initial, now) {
            take_error = take_error.and(store(&self.maps.allowances, &key, &to_raw(allowance)));
        }
        for (key, _) in self
            .all
            .extract_if(|_, it| it.last_seen + NETWORK_TTL < now)
        {
            // It is missing if the map was full.
            let _ = self.maps.allowances.delete(&key);
        }
        let governor = types::governor {
            decided_ns: now.as_nanos() as u64,
            initial: types::allowance {
                share: self.initial(now) as u16,
                verdict: types::verdict::VERDICT_NONE,
                ..Default::default()
            },
            ..Default::default()
        };
        take_error.and(store(&self.maps.governor, &0u32.to_ne_bytes(), &governor))
    }

    /// The share of a new network: networks may share an uplink, and one of them may have filled it.
    fn initial(&self, now: Duration) -> network::Share {
        match self.all.values().any(|it| it.is_suspected(now)) {
            true => LOW,
            false => FULL,
        }
    }

    /// Reads and resets the measurements, as far as possible; the error of the rest, if any.
    fn read(&self) -> (Vec<(Key, types::network_load)>, Result<(), Error>) {
        let any = MapFlags::ANY;
        let read = match self.maps.loads.lookup_and_delete_batch(BATCH, any, any) {
            Ok(read) => read,
            Err(error) => return (Vec::new(), Err(failed(error))),
        };
        let read = read.filter_map(|(key, value)| {
            // SAFETY: plain integers, of which any bits are valid, and enough of them.
            let load = (value.len() >= size_of::<types::network_load>()).then(|| unsafe {
                value
                    .as_ptr()
                    .cast::<types::network_load>()
                    .read_unaligned()
            });
            key.try_into().ok().zip(load)
        });
        (read.collect(), Ok(()))
    }
}

/// Decides for each network with measurements. If one stops, others with suspicious losses stop too.
/// Returns the decisions that changed.
fn decide(
    all: &mut HashMap<Key, Network>,
    loads: impl Iterator<Item = (Key, Load)>,
    initial: network::Share,
    now: Duration,
) -> HashMap<Key, Allowance> {
    let mut changed = HashMap::new();
    for (key, load) in loads {
        if all.len() >= MAX_NETWORKS as usize && !all.contains_key(&key) {
            continue;
        }
        let known = all.get(&key).map(Network::allowance);
        let network = all.entry(key);
        let network = network.or_insert_with(|| Network::new(now, initial));
        network.decide(now, &load);
        if known != Some(network.allowance()) {
            changed.insert(key, network.allowance());
        }
    }
    if all.values().any(|network| network.has_stopped(now)) {
        for (key, network) in all {
            if network.join_stop(now) {
                changed.insert(*key, network.allowance());
            }
        }
    }
    changed
}

fn store<T: Copy>(map: &MapHandle, key: &[u8], value: &T) -> Result<(), Error> {
    let stored = map.update(key, bytes(value), MapFlags::ANY);
    stored.map_err(failed)
}

fn to_raw(allowance: Allowance) -> types::allowance {
    types::allowance {
        share: allowance.share as u16,
        is_busy: allowance.is_busy.into(),
        verdict: match allowance.verdict {
            None => types::verdict::VERDICT_NONE,
            Some(Verdict::Ours) => types::verdict::VERDICT_OURS,
            Some(Verdict::NotOurs) => types::verdict::VERDICT_NOT_OURS,
            Some(Verdict::Stale) => types::verdict::VERDICT_STALE,
        },
        alarm: match allowance.alarm {
            None => types::alarm::ALARM_NONE,
            Some(Alarm::Queue) => types::alarm::ALARM_QUEUE,
            Some(Alarm::Loss) => types::alarm::ALARM_LOSS,
        },
        ..Default::default()
    }
}

/// The process gives up capabilities after this thread has started, and capabilities are a thread's own:
/// this one needs only that for maps.
fn drop_capabilities() {
    let needed = CapsHashSet::from([Capability::CAP_BPF]);
    let has = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let kept: CapsHashSet = needed.intersection(&has).copied().collect();
    for set in [CapSet::Effective, CapSet::Permitted] {
        // A thread may always give up its own.
        let _ = caps::set(None, set, &kept);
    }
}

fn failed(error: libbpf_rs::Error) -> Error {
    Error::system("govern redundancy", io::Error::other(error.to_string()))
}

/// The governor's decision about the connections to one peer network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GovernorDecision {
    /// The share of the eligible segments that may carry redundancy, 0 to 1.
    pub share: f64,
    /// The last verdict; `None` before the first.
    pub verdict: Option<Verdict>,
    /// Subject of the last alarm; `None` before the first.
    pub alarm: Option<Alarm>,
    /// True above 400 messages per second to the network, until below 300: level `auto` then copies none.
    pub busy_network: bool,
}

/// Cause of the queue, or of the losses, that an alarm was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Redundancy: they disappeared without it.
    Ours,
    /// Other traffic: they remained, or reappeared, without redundancy.
    NotOurs,
    /// Unknown: pillion did not decide in time.
    Stale,
}

/// Measurement that exceeded its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// The queue was longer than it had been without redundancy.
    Queue,
    /// More was lost than without redundancy.
    Loss,
}

impl GovernorDecision {
    /// The decision that a connection met last; `None` if it has met none.
    pub(crate) fn from_flow(raw: &types::allowance) -> Option<Self> {
        let verdict = match raw.verdict {
            types::verdict::VERDICT_OURS => Some(Verdict::Ours),
            types::verdict::VERDICT_NOT_OURS => Some(Verdict::NotOurs),
            types::verdict::VERDICT_STALE => Some(Verdict::Stale),
            _ => None,
        };
        let alarm = match raw.alarm {
            types::alarm::ALARM_QUEUE => Some(Alarm::Queue),
            types::alarm::ALARM_LOSS => Some(Alarm::Loss),
            _ => None,
        };
        let has_decision = raw.verdict != types::verdict::VERDICT_UNKNOWN;
        has_decision.then(|| Self {
            share: f64::from(raw.share) / f64::from(types::governor_share::FULL_SHARE.0),
            verdict,
            alarm,
            busy_network: raw.is_busy != 0,
        })
    }
}
