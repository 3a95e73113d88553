//! Programs that a test has done with, for the next one: verifying them takes longer than all else
//! that most tests do.

use std::sync::Mutex;
use std::sync::PoisonError;

use pillion_bpf::{Attachment, Policy, Programs};

/// Those done with, which may be waiting for sockets of theirs to be freed; the latest are the last.
static IDLE: Mutex<Vec<Programs>> = Mutex::new(Vec::new());

/// So many are kept.
const ROOM: usize = 16;

/// Programs as they are when loaded with this policy, and the kernel has verified them now or for an
/// earlier test.
pub(crate) fn take(policy: &Policy) -> Programs {
    let mut waiting = Vec::new();
    while let Some(mut programs) = pop() {
        match programs.renew(policy) {
            Ok(true) => {
                waiting.into_iter().rev().for_each(put);
                return programs;
            }
            Ok(false) => waiting.push(programs),
            Err(error) => panic!("the programs are made as they were: {error}"),
        }
    }
    waiting.into_iter().rev().for_each(put);
    Programs::load(policy).expect("the programs load")
}

/// Takes back the programs of a test that has passed.
pub(crate) fn give_back(attachment: Attachment) {
    put(attachment.into_programs());
}

fn pop() -> Option<Programs> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put(programs: Programs) {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    // The next tests are likelier to be of the latest's kind: those that watch are another.
    let oldest = (idle.len() == ROOM).then(|| idle.remove(0));
    idle.push(programs);
    // The kernel takes its time to free programs, and others wait for the lock.
    drop(idle);
    drop(oldest);
}
