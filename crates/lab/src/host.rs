use std::fs;
use std::io;
use std::net::Ipv4Addr;

use pillion_path::Tap;

use crate::{Error, Namespace};

/// A host of a testbed: a network namespace with one device.
#[derive(Debug)]
pub struct Host {
    /// The host's name, for messages.
    pub name: String,
    /// The host's network namespace.
    pub namespace: Namespace,
    /// The host's IPv4 address.
    pub address: Ipv4Addr,
}

/// The name of the device of every host.
pub(crate) const DEVICE: &str = "tap0";

/// Keeps the kernel from asking for routers and naming its groups, so that a path carries what is
/// studied and nothing else.
pub(crate) fn speak_ipv4_alone() -> io::Result<()> {
    match fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The address of a link's host by its number: 10.77.0.1 and so on.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// The hardware address of a link's host by its number. It is set by hand, so that no neighbour has
/// to be asked for and no question can get lost.
fn hardware_address(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

impl Host {
    /// Makes host 1 or 2 of a link; the link's other end is to be given the tap.
    ///
    /// # Errors
    /// [`Error::Command`] if `ip` fails, [`Error::Namespace`], [`Error::Path`].
    pub fn create(name: &str, number: u8) -> Result<(Self, Tap), Error> {
        let namespace = Namespace::create().map_err(|source| Error::Namespace {
            name: name.to_owned(),
            source,
        })?;
        let tap = namespace
            .enter(|| {
                speak_ipv4_alone()?;
                Ok::<_, io::Error>(Tap::open(DEVICE))
            })
            .and_then(|tap| tap)
            .map_err(|source| Error::Namespace {
                name: name.to_owned(),
                source,
            })??;
        let host = Self {
            name: name.to_owned(),
            namespace,
            address: address(number),
        };
        let peer = 3 - number;
        host.ip(&["link", "set", "lo", "up"])?;
        host.ip(&["link", "set", DEVICE, "address", &hardware_address(number)])?;
        host.ip(&["link", "set", DEVICE, "up"])?;
        host.ip(&[
            "address",
            "add",
            &format!("{}/24", host.address),
            "dev",
            DEVICE,
        ])?;
        let neighbour = address(peer).to_string();
        let hardware = hardware_address(peer);
        host.ip(&[
            "neighbour",
            "add",
            &neighbour,
            "lladdr",
            &hardware,
            "dev",
            DEVICE,
        ])?;
        Ok((host, tap))
    }

    /// Has TCP hand every segment to the device by itself, as with segmentation offload off.
    ///
    /// # Errors
    /// [`Error::Command`] if `ip` fails; it knows `gso_max_segs` since iproute2 5.16.
    pub fn send_segment_by_segment(&self) -> Result<(), Error> {
        self.ip(&["link", "set", DEVICE, "gso_max_segs", "1"])
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), Error> {
        let failed = |reason: String| Error::Command {
            command: format!("ip {}", arguments.join(" ")),
            host: self.name.clone(),
            reason,
        };
        let output = self
            .namespace
            .run("ip", arguments, "")
            .map_err(|error| failed(format!("{error}; `make setup` installs iproute2")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}
