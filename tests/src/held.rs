//! A socket that its application holds: a write that cannot go on, for a page of what is to be
//! written is missing.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::thread;

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;

use crate::Wire;
use crate::peer::PATIENCE;

const PAGE: usize = 4096;

/// `UFFDIO_API` of the kernel's `linux/userfaultfd.h`.
const API: libc::Ioctl = 0xc018_aa3f;
const REGISTER: libc::Ioctl = 0xc020_aa00;
const COPY: libc::Ioctl = 0xc028_aa03;
const VERSION: u64 = 0xaa;
const MISSING: u64 = 1;

impl Wire {
    /// Has the application write so many bytes while it holds the socket, and keeps it there as
    /// long as `meanwhile` takes; what comes for the socket has to wait. False where the kernel
    /// has no userfaultfd.
    pub fn held(&mut self, bytes: u32, meanwhile: impl FnOnce(&mut Self)) -> bool {
        let Some(missing) = MissingPage::new() else {
            return false;
        };
        self.script.note(&format!("held={bytes}"));
        let start = self.written + 1;
        self.written += bytes;
        let content = crate::script::content(start, start + bytes);
        let socket = self.stream.as_raw_fd();
        let address = missing.address as usize;
        thread::scope(|scope| {
            let length = content.len();
            // SAFETY: the page is mapped until this scope has ended.
            let write = move || unsafe { libc::send(socket, address as *const _, length, 0) };
            let writer = scope.spawn(write);
            missing.await_fault();
            meanwhile(self);
            missing.provide(&content);
            let written = writer.join().expect("the writer ends");
            assert_eq!(written, content.len().cast_signed(), "the write");
        });
        true
    }
}

/// A page of memory without content, with a file descriptor that tells when that is wanted.
struct MissingPage {
    address: *mut libc::c_void,
    faults: File,
}

impl MissingPage {
    fn new() -> Option<Self> {
        // SAFETY: a plain system call; the result is checked.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            assert_eq!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::ENOSYS)
            );
            return None;
        }
        // SAFETY: a valid file descriptor, new and nobody else's.
        let faults = unsafe { File::from_raw_fd(fd as i32) };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "mmap");
        let page = Self { address, faults };
        page.control(API, &mut [VERSION, 0, 0]);
        page.control(REGISTER, &mut [address as u64, PAGE as u64, MISSING, 0]);
        Some(page)
    }

    fn await_fault(&self) {
        let mut fds = [PollFd::new(
            std::os::fd::AsFd::as_fd(&self.faults),
            PollFlags::POLLIN,
        )];
        assert_eq!(
            poll(&mut fds, Some(PATIENCE)),
            Ok(1),
            "the write comes to the page"
        );
        let mut message = [0; 32];
        (&self.faults).read_exact(&mut message).expect("a message");
    }

    fn provide(&self, content: &[u8]) {
        let mut page = vec![0u8; PAGE];
        page[..content.len()].copy_from_slice(content);
        let (to, from) = (self.address as u64, page.as_ptr() as u64);
        self.control(COPY, &mut [to, from, PAGE as u64, 0, 0]);
    }

    fn control<const WORDS: usize>(&self, request: libc::Ioctl, words: &mut [u64; WORDS]) {
        // SAFETY: the words live across the call and are as many as the request has.
        let result = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, words.as_mut_ptr()) };
        assert!(result >= 0, "userfaultfd: {}", io::Error::last_os_error());
    }
}

impl Drop for MissingPage {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.address, PAGE) };
    }
}
