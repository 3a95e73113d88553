//! Cleanup after a bundler was killed. Bundling ends at once. The programs that keep reports from TCP
//! are detached later, because reports of bundles in flight still arrive.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::thread;
use std::time::Duration;

use nix::unistd::close;

use crate::{Namespaces, clsact, link};

/// Time that the reports of bundles in flight have to arrive: an RTT and the delay of an ACK.
const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Programs of a bundler that stay attached after the bundler was killed, as filters of clsact, by
/// their ids. Empty with tcx, whose links end with their last file descriptor.
#[derive(Debug)]
pub struct Remains {
    pub(crate) egress: Vec<u32>,
    pub(crate) ingress: Vec<u32>,
}

impl Remains {
    /// Detaches all programs of the killed bundler: those at egress at once, those at ingress two
    /// seconds later. The calling process must share the bundler's file descriptors; it closes all
    /// except the standard streams and `kept`. Filters are removed in these network namespaces. Errors
    /// are ignored.
    pub fn clear(&self, namespaces: &Namespaces, kept: Option<BorrowedFd>) {
        let links = close_all_but_ingress(kept);
        remove_filters(&self.egress, namespaces);
        thread::sleep(IN_FLIGHT);
        close_all(links);
        remove_filters(&self.ingress, namespaces);
    }
}

/// Closes all file descriptors except the standard streams, `kept` and the links at ingress; returns
/// these links.
fn close_all_but_ingress(kept: Option<BorrowedFd>) -> Vec<RawFd> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let kept = kept.map(|kept| kept.as_raw_fd());
    let (ingress, others): (Vec<RawFd>, _) = open
        .filter(|&fd| fd > libc::STDERR_FILENO && Some(fd) != kept)
        // SAFETY: nothing is closed until all descriptors are listed.
        .partition(|&fd| link::is_at_ingress(unsafe { BorrowedFd::borrow_raw(fd) }));
    close_all(others);
    ingress
}

fn close_all(files: Vec<RawFd>) {
    for file in files {
        // The folder that listed the descriptors is closed already.
        let _ = close(file);
    }
}

fn remove_filters(programs: &[u32], namespaces: &Namespaces) {
    if !programs.is_empty() {
        let _ = clsact::remove_filters(programs, namespaces);
    }
}
