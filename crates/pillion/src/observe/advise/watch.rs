//! What was observed so far, and whose the connections are.

use std::collections::HashMap;

use crate::trial::{Gathered, Service, Watched};
use pillion_bpf::Observation;
use pillion_bpf::host::{Known, SocketOwner, socket_owners};

/// What was observed so far, and whose the connections are.
pub struct Watch {
    ended: Gathered,
    present: Vec<Observation>,
    owners: Known<SocketOwner>,
    /// The processes' names, by the sockets' cookies: who had one that has ended is not to be found.
    processes: HashMap<u64, String>,
}

impl Watch {
    pub fn new(by_peer: bool) -> Self {
        Self {
            ended: Gathered::new(by_peer),
            present: Vec::new(),
            owners: Known::default(),
            processes: HashMap::new(),
        }
    }

    pub fn take(&mut self, observations: Vec<Observation>) {
        let (ended, present) = observations.into_iter().partition(|seen| seen.has_ended);
        self.present = present;
        self.find_owners();
        let ended: Vec<Observation> = ended;
        for seen in &ended {
            self.ended.extend([self.watched_of(seen)]);
            self.processes.remove(&seen.cookie);
        }
    }

    fn find_owners(&mut self) {
        let inodes = self.present.iter().filter_map(|seen| seen.inode);
        self.owners.look(&inodes.collect::<Vec<_>>(), socket_owners);
        for seen in &self.present {
            let owner = seen.inode.and_then(|inode| self.owners.of(inode));
            if let Some(owner) = owner {
                let process = self.processes.entry(seen.cookie);
                process.or_insert_with(|| owner.process.clone());
            }
        }
    }

    fn watched_of(&self, seen: &Observation) -> Watched {
        Watched {
            process: self.processes.get(&seen.cookie).cloned(),
            service: Service::of(seen),
            guessed: seen.direction.is_none(),
            peer: seen.peer.ip(),
            summary: seen.into(),
        }
    }

    /// All that was watched.
    pub fn gathered(&self) -> Gathered {
        let mut all = self.ended.clone();
        all.extend(self.present.iter().map(|seen| self.watched_of(seen)));
        all
    }
}
