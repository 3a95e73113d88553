//! Changes by other programs: devices appear, change and vanish, and a name moves from one network
//! namespace to the next.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::{fs, io};

use pillion_lab::Namespace;
use rand::{Rng, RngExt};
use tempfile::TempDir;

use super::environment::Environment;
use super::plan::Side;

/// Maximum number of these devices at a time.
pub const DEVICES: usize = 6;

/// Device alias that is not UTF-8.
const NON_UTF8: &[u8] = b"\xff gust \xfc";

#[derive(Debug)]
pub struct DeviceChurn {
    folder: TempDir,
    devices: Vec<(Side, String)>,
    namespace: Namespace,
    /// Devices created so far; makes names unique.
    created: u64,
}

impl DeviceChurn {
    pub fn start() -> io::Result<Self> {
        let mut churn = Self {
            folder: TempDir::new()?,
            devices: Vec::new(),
            namespace: Namespace::create()?,
            created: 0,
        };
        churn.assign_name(Namespace::create()?)?;
        Ok(churn)
    }

    /// Returns a path that always refers to some network namespace.
    pub fn namespace_path(&self) -> PathBuf {
        self.folder.path().join("name")
    }

    /// Makes one random change. An error names the change that failed.
    pub fn change(
        &mut self,
        environment: &Environment,
        random: &mut impl Rng,
    ) -> Result<(), String> {
        let result = match random.random_range(0..10) {
            0..3 if self.devices.len() < DEVICES => self.add_device(environment, random),
            0..5 => self.remove_device(environment, random),
            5..9 => self.change_device(environment, random),
            _ => self.move_name(),
        };
        result.map_err(|error| format!("device churn: {error}"))
    }

    /// Removes all remaining devices.
    pub fn remove_all(&mut self, environment: &Environment) -> Result<(), String> {
        for (side, name) in self.devices.drain(..) {
            let deleted = ip(environment, side, &["link", "del", &name]);
            deleted.map_err(|error| format!("device churn: {error}"))?;
        }
        Ok(())
    }

    fn add_device(&mut self, environment: &Environment, random: &mut impl Rng) -> io::Result<()> {
        let side = match random.random() {
            true => Side::Client,
            false => Side::Server,
        };
        self.created += 1;
        let name = format!("gust{}", self.created);
        let mode = ["tap", "tun"][random.random_range(0..2)];
        ip(environment, side, &["tuntap", "add", &name, "mode", mode])?;
        self.devices.push((side, name.clone()));
        ip(environment, side, &["link", "set", &name, "up"])
    }

    fn remove_device(
        &mut self,
        environment: &Environment,
        random: &mut impl Rng,
    ) -> io::Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let index = random.random_range(0..self.devices.len());
        let (side, name) = self.devices.swap_remove(index);
        ip(environment, side, &["link", "del", &name])
    }

    fn change_device(
        &mut self,
        environment: &Environment,
        random: &mut impl Rng,
    ) -> io::Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let index = random.random_range(0..self.devices.len());
        let (side, name) = &mut self.devices[index];
        let alias = OsStr::from_bytes(NON_UTF8);
        let set = |arguments: &[&str], last: &OsStr| {
            let mut all: Vec<OsString> = ["link", "set", name.as_str()].map(Into::into).into();
            all.extend(arguments.iter().map(Into::into));
            all.push(last.to_owned());
            ip(environment, *side, &all)
        };
        match random.random_range(0..5) {
            0 => set(&[], OsStr::new("down")),
            1 => set(&[], OsStr::new("up")),
            2 => set(&["alias"], alias),
            3 => set(
                &["mtu"],
                OsStr::new(["1280", "1500", "9000"][random.random_range(0..3)]),
            ),
            _ => {
                self.created += 1;
                let other = format!("gust{}", self.created);
                // Before Linux 6.2, a device that is up cannot be renamed.
                set(&[], OsStr::new("down"))?;
                set(&["name"], OsStr::new(&other))?;
                *name = other;
                ip(environment, *side, &["link", "set", name, "up"])
            }
        }
    }

    fn move_name(&mut self) -> io::Result<()> {
        self.assign_name(Namespace::create()?)
    }

    fn assign_name(&mut self, namespace: Namespace) -> io::Result<()> {
        let new = self.folder.path().join("new");
        symlink(namespace.path(), &new)?;
        fs::rename(new, self.namespace_path())?;
        self.namespace = namespace;
        Ok(())
    }
}

fn ip<S: AsRef<OsStr>>(environment: &Environment, side: Side, arguments: &[S]) -> io::Result<()> {
    let host = match side {
        Side::Client => &environment.pair.sender.namespace,
        Side::Server => &environment.pair.receiver.namespace,
    };
    let output = host.command("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip {:?}: {}",
            arguments.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
