use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::contract::types::closed_flow;
use crate::flows::{Record, find_maps, parse};
use crate::host::clock;
use crate::{Error, Flow};

/// The last closed connections of every running pillion, oldest first; at most 1,024 of each.
/// Before Linux 6.12, connections that existed before pillion are missing.
///
/// # Errors
///
/// [`Error::ListNotPermitted`] without the capability to read other processes' maps;
/// [`Error::System`].
pub fn list_closed() -> Result<Vec<Flow>, Error> {
    let mut closed = Vec::new();
    for map in find_maps("pillion_closed", size_of::<closed_flow>())? {
        let mut slot = 0;
        while let Some(value) = read(&map, slot)? {
            closed.extend(read_consistent(&map, slot, value)?);
            slot += 1;
        }
    }
    closed.sort_by_key(|value| (word::<CLOSED_NS>(value), word::<NUMBER>(value)));
    let boot_time = boot_time();
    Ok(closed.iter().map(|value| flow(value, boot_time)).collect())
}

type Value = [u8; size_of::<closed_flow>()];

const NUMBER: usize = offset_of!(closed_flow, number);
const CLOSED_NS: usize = offset_of!(closed_flow, closed_ns);

/// The 8-byte word at this offset.
fn word<const AT: usize>(value: &Value) -> u64 {
    let bytes = value[AT..AT + 8].try_into();
    u64::from_ne_bytes(bytes.unwrap_or_default())
}

/// The slot's value, after three equal reads while no program writes it (`bpf/bundler/closed.h`);
/// `None` if the slot is empty, or busy at each attempt.
fn read_consistent(map: &OwnedFd, slot: u32, mut before: Value) -> Result<Option<Value>, Error> {
    const ATTEMPTS: u32 = 16;
    const BUSY: usize = offset_of!(closed_flow, busy);
    let mut equal_reads = 1;
    for _ in 0..ATTEMPTS {
        let is_idle = before[BUSY..BUSY + 4] == [0; 4];
        if is_idle && word::<NUMBER>(&before) == 0 {
            break;
        }
        fence(Ordering::Acquire); // orders the reads
        let Some(value) = read(map, slot)? else {
            break;
        };
        equal_reads = if value == before { equal_reads + 1 } else { 1 };
        if is_idle && equal_reads == 3 {
            return Ok(Some(value));
        }
        before = value;
    }
    Ok(None)
}

/// The slot's current value; `None` if the slot does not exist.
fn read(map: &OwnedFd, slot: u32) -> Result<Option<Value>, Error> {
    let mut value = [0; size_of::<closed_flow>()];
    // SAFETY: a system call that reads a slot number and writes a value of the map's size; both
    // live across it.
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

fn flow(value: &Value, boot_time: Duration) -> Flow {
    const RECORD: usize = offset_of!(closed_flow, record);
    // The counters follow the record, as in the output for a live connection.
    const _: () = assert!(RECORD + size_of::<Record>() == size_of::<closed_flow>());
    let closed_at_s = boot_time + Duration::from_nanos(word::<CLOSED_NS>(value));
    Flow {
        closed_at_s: Some(closed_at_s.as_secs()),
        ..parse(&value[RECORD..])
    }
}

/// The boot time of this host since 1970, by the current clock.
fn boot_time() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().saturating_sub(clock::since_start())
}
