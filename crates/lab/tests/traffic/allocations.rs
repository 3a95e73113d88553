//! Messages need no allocations, neither at the sender nor at the receiver.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{MS, Thin, receive, send, thin};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the messages and allocations of a complete run at both ends, with records.
fn run(duration_ms: u32) -> (u64, u64) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let (address, received) = receive(4);
    let sent = send(Thin {
        itt: MS / 5,
        duration: duration_ms * MS,
        ..thin(address)
    });
    let report = received.join().unwrap().report;
    assert_eq!((report.messages, report.incomplete), (sent.messages, 0));
    (sent.messages, ALLOCATIONS.load(Ordering::Relaxed) - before)
}

#[test]
fn ten_times_messages_need_no_more_allocations() {
    let (few, few_allocations) = run(50);
    let (many, many_allocations) = run(500);
    assert!(many > 5 * few);
    // A queue in front of a full socket may double a few times.
    assert!(
        many_allocations < few_allocations + 50,
        "{few} messages: {few_allocations}; {many} messages: {many_allocations}"
    );
}
