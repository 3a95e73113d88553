//! Vector registers of threads that share an address space, and therefore one process on the host.

use std::arch::asm;
use std::ptr;
use std::thread;

use libc::{SYS_fork, SYS_gettid, SYS_sched_yield, SYS_tkill, c_long};
use nix::errno::Errno;
use pillion_bpf::host::interruption::retry;

const THREADS: u128 = 4;
const ROUNDS: u128 = 500;

/// Makes a system call with a pattern in a vector register. Returns the call's result and the
/// register's content afterwards.
fn call_with_pattern(pattern: u128, number: c_long, arguments: [c_long; 2]) -> (c_long, u128) {
    let mut after = 0u128;
    let result;
    // SAFETY: a system call that follows the ABI; none of these calls accesses memory.
    unsafe {
        asm!(
            "movdqu xmm7, [{pattern}]",
            "syscall",
            "movdqu [{after}], xmm7",
            pattern = in(reg) &raw const pattern,
            after = in(reg) &raw mut after,
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            out("rcx") _,
            out("r11") _,
            out("xmm7") _,
        );
    }
    (result, after)
}

/// Writes to memory with a pattern in a vector register. Returns the register's content afterwards.
fn write_with_pattern(pattern: u128, memory: *mut u8) -> u128 {
    let mut after = 0u128;
    // SAFETY: the caller owns the memory.
    unsafe {
        asm!(
            "movdqu xmm7, [{pattern}]",
            "mov byte ptr [{memory}], 1",
            "movdqu [{after}], xmm7",
            pattern = in(reg) &raw const pattern,
            after = in(reg) &raw mut after,
            memory = in(reg) memory,
            out("xmm7") _,
        );
    }
    after
}

extern "C" fn overwrite(_: libc::c_int) {
    // SAFETY: the register is declared as clobbered.
    unsafe { asm!("pcmpeqd xmm7, xmm7", out("xmm7") _) };
}

/// Runs the check in several threads at the same time, with different patterns in each.
fn in_threads(check: fn(u128)) {
    let threads: Vec<_> = (1..=THREADS)
        .map(|thread_number| {
            thread::spawn(move || {
                (0..ROUNDS).for_each(|round| check(thread_number << 96 | round << 32 | 7));
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
#[ignore = "runs in the lab kernel"]
fn thread_switch_preserves_vector_registers() {
    in_threads(|pattern| {
        assert_eq!(
            call_with_pattern(pattern, SYS_sched_yield, [0; 2]),
            (0, pattern)
        );
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn signal_handler_preserves_vector_registers() {
    let handler = overwrite as extern "C" fn(libc::c_int);
    // SAFETY: the handler only overwrites a register.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    in_threads(|pattern| {
        let (thread, _) = call_with_pattern(pattern, SYS_gettid, [0; 2]);
        let signal = c_long::from(libc::SIGUSR1);
        assert_eq!(
            call_with_pattern(pattern, SYS_tkill, [thread, signal]),
            (0, pattern)
        );
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn page_fault_preserves_vector_registers() {
    in_threads(|pattern| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps and unmaps a new page that nothing else uses.
        unsafe {
            let page = libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(write_with_pattern(pattern, page.cast()), pattern);
            libc::munmap(page, 4096);
        }
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn fork_preserves_vector_registers_in_both_processes() {
    in_threads(|pattern| {
        if pattern >> 32 & 15 != 0 {
            return;
        }
        let (child, after) = call_with_pattern(pattern, SYS_fork, [0; 2]);
        if child == 0 {
            // SAFETY: exits the child.
            unsafe { libc::_exit(i32::from(after != pattern)) };
        }
        assert_eq!(after, pattern);
        let mut status = -1;
        let child = libc::pid_t::try_from(child).unwrap();
        // SAFETY: `status` lives across the call.
        let wait = || Errno::result(unsafe { libc::waitpid(child, &raw mut status, 0) });
        let ended = retry(wait).unwrap();
        assert_eq!((ended, status), (child, 0));
    });
}
