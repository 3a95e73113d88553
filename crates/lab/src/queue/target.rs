use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::net::if_::{if_nameindex, if_nametoindex};

use crate::queue::Error;

/// A device whose queue is to be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The device's name.
    pub device: String,
    /// The device's interface index.
    pub(crate) index: u32,
    /// Inode number of the device's network namespace; 0 where the kernel has only one.
    pub(crate) netns: u32,
}

impl Target {
    /// Finds a device of the calling thread's network namespace. One that has the same name later,
    /// or moves elsewhere, is another.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    pub fn find(device: &str) -> Result<Self, Error> {
        let index = if_nametoindex(device).map_err(|_| Error::UnknownDevice {
            name: device.to_owned(),
            known: known(),
        })?;
        let netns = fs::metadata("/proc/thread-self/ns/net").map(|file| file.ino());
        Ok(Self {
            device: device.to_owned(),
            index,
            netns: netns
                .ok()
                .and_then(|inode| inode.try_into().ok())
                .unwrap_or(0),
        })
    }
}

fn known() -> String {
    let names: Vec<_> = if_nameindex()
        .iter()
        .flat_map(|devices| devices.iter())
        .map(|device| device.name().to_string_lossy().into_owned())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_name_and_others_are_named() {
        let target = Target::find("lo").unwrap();
        assert_eq!((target.device.as_str(), target.index), ("lo", 1));
        let said = Target::find("nosuch0").unwrap_err().to_string();
        assert!(said.contains("`nosuch0`") && said.contains("lo"), "{said}");
    }
}
