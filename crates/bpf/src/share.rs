//! How many devices there is room for: links are file descriptors, of which a process has no more
//! than its limit (RLIMIT_NOFILE).

use std::fs;

use nix::sys::resource::{Resource, getrlimit};

use crate::{Error, Hook};

/// File descriptors that one device takes, by tcx.
const OF_A_DEVICE: usize = 2;

/// File descriptors of a namespace that has a name: what keeps it, and what tells of its devices.
const OF_A_NAMESPACE: usize = 2;

/// File descriptors kept free, so that devices never keep anything else from going on: lists of
/// devices, rules that are read again, connections that are taken in.
const SPARE: usize = 24;

/// An equal share of the free file descriptors for each namespace: none can take the room of
/// another.
#[derive(Debug)]
pub(crate) struct Share {
    each: usize,
    limit: usize,
}

impl Share {
    /// The share of each of so many namespaces, beside what this process holds already for other ends
    /// than so many devices.
    pub(crate) fn of_this_process(hook: Hook, namespaces: usize, devices: usize) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
            usize::try_from(soft).unwrap_or(usize::MAX)
        });
        // One of them reads the list.
        let held = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let held = held.saturating_sub(OF_A_DEVICE * devices);
        let each = match hook {
            Hook::Tcx => share(limit, held, namespaces),
            // Filters take no descriptors.
            Hook::Clsact => usize::MAX,
        };
        Self { each, limit }
    }

    /// The most devices of one namespace.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    pub(crate) fn error(&self, namespace: Option<&str>) -> Error {
        Error::NoRoom {
            namespace: namespace.map(str::to_owned),
            most: self.each,
            limit: self.limit,
        }
    }
}

fn share(limit: usize, held: usize, namespaces: usize) -> usize {
    let namespaces = namespaces.max(1);
    // Those that have ended may be back.
    let reserved = held + SPARE + OF_A_NAMESPACE * namespaces;
    limit.saturating_sub(reserved) / OF_A_DEVICE / namespaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_takes_the_room_of_another() {
        assert_eq!(share(1024, 40, 1), 479);
        assert_eq!(share(1024, 40, 4), 119);
        assert!(40 + SPARE + 4 * (OF_A_NAMESPACE + OF_A_DEVICE * share(1024, 40, 4)) <= 1024);
        assert_eq!(share(40, 40, 1), 0);
        assert!(share(usize::MAX, 40, 256) > 1_000_000);
    }
}
