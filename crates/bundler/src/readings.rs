use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapHandle;

use crate::{Error, Totals, link};

/// What the programs of one pillion tell at any moment, from any thread.
#[derive(Debug)]
pub struct Readings {
    pub(crate) totals: MapHandle,
    /// An iterator that gives the user of each connection.
    pub(crate) connections: OwnedFd,
}

impl Readings {
    /// What the programs did so far, on all connections.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        Totals::read(&self.totals)
    }

    /// How many connections are covered at this moment.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to go through them.
    pub fn connections(&self) -> Result<u64, Error> {
        let failed = |error| Error::system("count the connections", error);
        let run = link::run_iterator(self.connections.as_fd()).map_err(failed)?;
        let mut users = Vec::new();
        File::from(run).read_to_end(&mut users).map_err(failed)?;
        Ok((users.len() / size_of::<u32>()) as u64)
    }
}
