//! Vector registers of threads that share an address space, and so one process on the host.

use std::arch::asm;
use std::ptr;
use std::thread;

use libc::{SYS_fork, SYS_gettid, SYS_sched_yield, SYS_tkill, c_long};
use nix::errno::Errno;
use pillion_bpf::host::interruption::retry;

const THREADS: u128 = 4;
const ROUNDS: u128 = 500;

/// Calls the kernel with a pattern in a vector register. Gives what the call returned, and what is
/// in the register then.
fn call(pattern: u128, number: c_long, arguments: [c_long; 2]) -> (c_long, u128) {
    let mut kept = 0u128;
    let result;
    // SAFETY: a system call by the ABI; the calls made here touch no memory.
    unsafe {
        asm!(
            "movdqu xmm7, [{pattern}]",
            "syscall",
            "movdqu [{kept}], xmm7",
            pattern = in(reg) &raw const pattern,
            kept = in(reg) &raw mut kept,
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            out("rcx") _,
            out("r11") _,
            out("xmm7") _,
        );
    }
    (result, kept)
}

/// Writes to memory with a pattern in a vector register, which it returns.
fn touch(pattern: u128, memory: *mut u8) -> u128 {
    let mut kept = 0u128;
    // SAFETY: the memory is the caller's.
    unsafe {
        asm!(
            "movdqu xmm7, [{pattern}]",
            "mov byte ptr [{memory}], 1",
            "movdqu [{kept}], xmm7",
            pattern = in(reg) &raw const pattern,
            kept = in(reg) &raw mut kept,
            memory = in(reg) memory,
            out("xmm7") _,
        );
    }
    kept
}

extern "C" fn overwrite(_: libc::c_int) {
    // SAFETY: the register is said to be overwritten.
    unsafe { asm!("pcmpeqd xmm7, xmm7", out("xmm7") _) };
}

/// Does the same in several threads at once, in each with patterns that no other has.
fn in_threads(check: fn(u128)) {
    let threads: Vec<_> = (1..=THREADS)
        .map(|own| {
            thread::spawn(move || (0..ROUNDS).for_each(|round| check(own << 96 | round << 32 | 7)))
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
#[ignore = "runs in the lab kernel"]
fn survive_a_switch_to_another_thread_and_back() {
    in_threads(|pattern| assert_eq!(call(pattern, SYS_sched_yield, [0; 2]), (0, pattern)));
}

#[test]
#[ignore = "runs in the lab kernel"]
fn survive_a_signal_whose_handler_overwrites_them() {
    let handler = overwrite as extern "C" fn(libc::c_int);
    // SAFETY: the handler touches nothing but a register.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    in_threads(|pattern| {
        let (thread, _) = call(pattern, SYS_gettid, [0; 2]);
        let signal = c_long::from(libc::SIGUSR1);
        assert_eq!(call(pattern, SYS_tkill, [thread, signal]), (0, pattern));
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn survive_a_page_fault() {
    in_threads(|pattern| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of a page, which nothing else knows, and its end.
        unsafe {
            let page = libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(touch(pattern, page.cast()), pattern);
            libc::munmap(page, 4096);
        }
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn are_inherited_by_a_forked_process_and_kept_by_its_parent() {
    in_threads(|pattern| {
        if pattern >> 32 & 15 != 0 {
            return;
        }
        let (child, kept) = call(pattern, SYS_fork, [0; 2]);
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(kept != pattern)) };
        }
        assert_eq!(kept, pattern);
        let mut status = -1;
        let child = libc::pid_t::try_from(child).unwrap();
        // SAFETY: the status lives across the call.
        let wait = || Errno::result(unsafe { libc::waitpid(child, &raw mut status, 0) });
        let ended = retry(wait).unwrap();
        assert_eq!((ended, status), (child, 0));
    });
}
