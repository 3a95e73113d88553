use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::Node;
use crate::Error;

const LONGEST: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(100);

/// Waits until every device of these machines forwards: after its other end has come up, it takes
/// a second until the kernel takes note, and a bridge drops all until then, the first SYNs too.
///
/// # Errors
/// [`Error::System`] if a device does not come up.
pub(super) fn settle<'a>(nodes: impl Iterator<Item = &'a Node>) -> Result<(), Error> {
    let begun = Instant::now();
    for node in nodes {
        while let Some(device) = resting(node)? {
            if begun.elapsed() > LONGEST {
                let what = format!("{device} of {} does not come up", node.name);
                return Err(Error::System {
                    action: "bring up the testbed's devices",
                    source: io::Error::new(io::ErrorKind::TimedOut, what),
                });
            }
            thread::sleep(BETWEEN);
        }
    }
    Ok(())
}

/// The name of a device of the machine that has no carrier yet.
fn resting(node: &Node) -> Result<Option<String>, Error> {
    let found = node.enter(|| {
        let mut devices = getifaddrs()?;
        let resting = devices.find(|device| is_resting(device.flags));
        Ok(resting.map(|device| device.interface_name))
    })?;
    found.map_err(|errno: Errno| Error::System {
        action: "see whether devices have come up",
        source: errno.into(),
    })
}

fn is_resting(flags: InterfaceFlags) -> bool {
    flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_RUNNING)
}
