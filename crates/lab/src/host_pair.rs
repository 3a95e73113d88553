use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::{io, net::SocketAddr};

use pillion_path::{Path, PathConfig};
use pillion_traffic::{ReceiveConfig, ReceiveError, Received, Receiver};

use crate::{Error, Host};

/// A sender and a receiver with a path of their own between them.
#[derive(Debug)]
pub struct HostPair {
    /// The host that the data comes from.
    pub sender: Host,
    /// The host that the data goes to.
    pub receiver: Host,
    /// The path between the two hosts.
    pub path: Path,
}

/// A receiver at work on a pair's receiving host.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// The address at which the receiver listens.
    pub address: SocketAddr,
    thread: JoinHandle<io::Result<Result<Received, ReceiveError>>>,
}

/// The receiver's port. Any would do: every pair has hosts of its own.
const PORT: u16 = 7777;

impl HostPair {
    /// Makes both hosts, and the path.
    ///
    /// # Errors
    /// As [`Host::create`]; [`Error::Path`] if the path's configuration cannot be.
    pub fn create(name: &str, path: &PathConfig) -> Result<Self, Error> {
        let (sender, sender_tap) = Host::create(&format!("{name} sender"), 1)?;
        let (receiver, receiver_tap) = Host::create(&format!("{name} receiver"), 2)?;
        let path = Path::start(sender_tap, receiver_tap, path)?;
        Ok(Self {
            sender,
            receiver,
            path,
        })
    }

    /// Starts a receiver for so many streams; it listens when this returns.
    pub(crate) fn receive(
        &self,
        streams: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<Receiving, Error> {
        let address = SocketAddr::from((self.receiver.address, PORT));
        let config = ReceiveConfig {
            listen: address,
            streams: Some(streams),
            records: true,
        };
        let receiver = self
            .receiver
            .namespace
            .enter(move || Receiver::bind(config))
            .map_err(|source| Error::Namespace {
                name: self.receiver.name.clone(),
                source,
            })??;
        let thread = self.receiver.namespace.spawn(move || receiver.run(&stop));
        Ok(Receiving { address, thread })
    }
}

impl Receiving {
    /// Waits for the receiver's end, and returns what it received.
    pub fn finish(self) -> Result<Received, Error> {
        let joined = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        Ok(joined.map_err(|source| Error::System {
            action: "receiver's thread",
            source,
        })??)
    }
}
