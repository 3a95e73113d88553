use libbpf_rs::MapHandle;

use crate::places::Kept;
use crate::{Error, Namespace, Totals};

/// What the programs of one pillion tell at any moment, from any thread.
#[derive(Debug)]
pub struct Readings {
    pub(crate) totals: MapHandle,
    pub(crate) connections: Kept,
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
        let kept = self.connections.read(&[Namespace::default()])?;
        // An application may keep a socket whose connection has ended.
        Ok(kept.iter().filter(|it| it.is_over == 0).count() as u64)
    }
}
