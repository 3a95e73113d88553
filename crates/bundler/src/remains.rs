//! What is left of a bundler that was killed. What bundles ends at once; what keeps reports from TCP
//! ends later, as those of bundles in flight still arrive.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::thread;
use std::time::Duration;

use crate::{Namespaces, clsact, link};

/// How long reports of bundles in flight may take to arrive: an RTT and the delay of an ACK.
const IN_FLIGHT: Duration = Duration::from_secs(2);

/// What a process clears away that shares the file descriptors of the bundler's, once that is dead.
#[derive(Debug)]
pub struct Remains {
    pub(crate) filters: Option<Filters>,
}

/// The programs that stand at devices as filters of clsact, by their ids.
#[derive(Debug)]
pub(crate) struct Filters {
    pub(crate) egress: Vec<u32>,
    pub(crate) ingress: Vec<u32>,
}

impl Remains {
    /// Closes every file descriptor of this process but for standard streams, `kept` and, until
    /// reports in flight have arrived, the links at ingress. Also removes the filters in these network
    /// namespaces. What fails is not told to anybody: nobody is left.
    pub fn clear(&self, namespaces: &Namespaces, kept: Option<BorrowedFd>) {
        let links = close_all_but_ingress(kept);
        let remove = |programs: &[u32]| {
            let _ = clsact::remove_filters(programs, namespaces);
        };
        if let Some(filters) = &self.filters {
            remove(&filters.egress);
        }
        thread::sleep(IN_FLIGHT);
        links.into_iter().for_each(close);
        if let Some(filters) = &self.filters {
            remove(&filters.ingress);
        }
    }
}

/// Returns the links at ingress.
fn close_all_but_ingress(kept: Option<BorrowedFd>) -> Vec<RawFd> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    let kept = kept.map(|it| it.as_raw_fd());
    let all: Vec<RawFd> = numbers
        .filter(|&fd| fd > libc::STDERR_FILENO && Some(fd) != kept)
        .collect();
    let (ingress, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|&fd| is_at_ingress(fd));
    others.into_iter().for_each(close);
    ingress
}

fn is_at_ingress(fd: RawFd) -> bool {
    // SAFETY: open until it is closed below.
    link::is_at_ingress(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn close(fd: RawFd) {
    // SAFETY: of a process that does nothing else any more; who owned the file is dead.
    unsafe { libc::close(fd) };
}
