use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::contract::types::closed_flow;
use crate::flows::{Record, find_maps, parse};
use crate::host::clock;
use crate::{Error, Flow};

/// The connections that ended last, the newest last, of every pillion that runs on this host; of
/// each pillion 1,024 at most. Those are missing that had begun before pillion did, where the kernel
/// is older than Linux 6.12.
///
/// # Errors
/// [`Error::MayNotList`] without the capability for what other processes keep;
/// [`Error::System`].
pub fn list_closed() -> Result<Vec<Flow>, Error> {
    let mut closed = Vec::new();
    for map in find_maps("pillion_closed", size_of::<closed_flow>())? {
        let mut slot = 0;
        while let Some(value) = read(&map, slot)? {
            closed.extend(whole(&map, slot, value)?);
            slot += 1;
        }
    }
    closed.sort_by_key(|value| (word::<CLOSED_NS>(value), word::<NUMBER>(value)));
    let started = started();
    Ok(closed.iter().map(|value| flow(value, started)).collect())
}

type Value = [u8; size_of::<closed_flow>()];

const NUMBER: usize = offset_of!(closed_flow, number);
const CLOSED_NS: usize = offset_of!(closed_flow, closed_ns);

/// The word at this place.
fn word<const AT: usize>(value: &Value) -> u64 {
    let bytes = value[AT..AT + 8].try_into();
    u64::from_ne_bytes(bytes.unwrap_or_default())
}

/// The slot's value, once two looks find the same and no program at work on it
/// (`bpf/bundler/closed.h`); `None` of a slot without any, or that is never at rest.
fn whole(map: &OwnedFd, slot: u32, mut before: Value) -> Result<Option<Value>, Error> {
    const ATTEMPTS: u32 = 16;
    const BUSY: usize = offset_of!(closed_flow, busy);
    for _ in 0..ATTEMPTS {
        let is_at_rest = before[BUSY..BUSY + 4] == [0; 4];
        if is_at_rest && word::<NUMBER>(&before) == 0 {
            break;
        }
        let Some(value) = read(map, slot)? else {
            break;
        };
        if is_at_rest && value == before {
            return Ok(Some(value));
        }
        before = value;
    }
    Ok(None)
}

/// What the slot has at this moment; `None` if there is no such slot.
fn read(map: &OwnedFd, slot: u32) -> Result<Option<Value>, Error> {
    let mut value = [0; size_of::<closed_flow>()];
    // SAFETY: a system call that reads a slot's number and writes a value, of which the map was
    // asked for its size; both live across it.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const slot).cast(),
            value.as_mut_ptr().cast(),
        )
    };
    match -result {
        0 => Ok(Some(value)),
        libc::ENOENT => Ok(None),
        errno => {
            let error = io::Error::from_raw_os_error(errno);
            Err(Error::system("list the connections that ended", error))
        }
    }
}

fn flow(value: &Value, started: Duration) -> Flow {
    const RECORD: usize = offset_of!(closed_flow, record);
    // The counters stand right behind the record, as in what is written of a live connection.
    const _: () = assert!(RECORD + size_of::<Record>() == size_of::<closed_flow>());
    let closed_at = started + Duration::from_nanos(word::<CLOSED_NS>(value));
    Flow {
        closed_at: Some(closed_at.as_secs()),
        ..parse(&value[RECORD..])
    }
}

/// When this host started, since 1970, by what its clock says now.
fn started() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().saturating_sub(clock::since_start())
}
