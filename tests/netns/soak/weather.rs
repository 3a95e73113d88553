//! Changes by other programs: devices appear, change and vanish, and a name moves from one network
//! namespace to the next.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use pillion_lab::Namespace;
use rand::{Rng, RngExt};
use tempfile::TempDir;

use super::ground::Ground;
use super::plan::Side;

/// Maximum number of these devices at a time.
pub const DEVICES: usize = 6;

/// Device alias that is not UTF-8.
const UNREADABLE: &[u8] = b"\xff gust \xfc";

#[derive(Debug)]
pub struct Weather {
    folder: TempDir,
    devices: Vec<(Side, String)>,
    named: Namespace,
    /// Devices created so far; makes names unique.
    made: u64,
}

impl Weather {
    pub fn begin() -> io::Result<Self> {
        let mut weather = Self {
            folder: TempDir::new()?,
            devices: Vec::new(),
            named: Namespace::create()?,
            made: 0,
        };
        weather.name(Namespace::create()?)?;
        Ok(weather)
    }

    /// Returns a path that always refers to some network namespace.
    pub fn name_of_namespace(&self) -> PathBuf {
        self.folder.path().join("name")
    }

    /// Makes one random change. An error names the change that failed.
    pub fn gust(&mut self, ground: &Ground, random: &mut impl Rng) -> Result<(), String> {
        let happens = match random.random_range(0..10) {
            0..3 if self.devices.len() < DEVICES => self.device_comes(ground, random),
            0..5 => self.device_goes(ground, random),
            5..9 => self.device_changes(ground, random),
            _ => self.name_passes_on(),
        };
        happens.map_err(|error| format!("device churn: {error}"))
    }

    /// Removes all remaining devices.
    pub fn end(&mut self, ground: &Ground) -> Result<(), String> {
        for (side, name) in self.devices.drain(..) {
            let gone = ip(ground, side, &["link", "del", &name]);
            gone.map_err(|error| format!("device churn: {error}"))?;
        }
        Ok(())
    }

    fn device_comes(&mut self, ground: &Ground, random: &mut impl Rng) -> io::Result<()> {
        let side = match random.random() {
            true => Side::Client,
            false => Side::Server,
        };
        self.made += 1;
        let name = format!("gust{}", self.made);
        let mode = ["tap", "tun"][random.random_range(0..2)];
        ip(ground, side, &["tuntap", "add", &name, "mode", mode])?;
        self.devices.push((side, name.clone()));
        ip(ground, side, &["link", "set", &name, "up"])
    }

    fn device_goes(&mut self, ground: &Ground, random: &mut impl Rng) -> io::Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let which = random.random_range(0..self.devices.len());
        let (side, name) = self.devices.swap_remove(which);
        ip(ground, side, &["link", "del", &name])
    }

    fn device_changes(&mut self, ground: &Ground, random: &mut impl Rng) -> io::Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let which = random.random_range(0..self.devices.len());
        let (side, name) = &mut self.devices[which];
        let alias = OsStr::from_bytes(UNREADABLE);
        let set = |words: &[&str], last: &OsStr| {
            let mut all: Vec<OsString> = ["link", "set", name.as_str()].map(Into::into).into();
            all.extend(words.iter().map(Into::into));
            all.push(last.to_owned());
            ip(ground, *side, &all)
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
                self.made += 1;
                let other = format!("gust{}", self.made);
                // Before Linux 6.2, a device that is up cannot be renamed.
                set(&[], OsStr::new("down"))?;
                set(&["name"], OsStr::new(&other))?;
                *name = other;
                ip(ground, *side, &["link", "set", name, "up"])
            }
        }
    }

    fn name_passes_on(&mut self) -> io::Result<()> {
        self.name(Namespace::create()?)
    }

    fn name(&mut self, namespace: Namespace) -> io::Result<()> {
        let new = self.folder.path().join("new");
        symlink(namespace.path(), &new)?;
        fs::rename(new, self.name_of_namespace())?;
        self.named = namespace;
        Ok(())
    }
}

fn ip<S: AsRef<OsStr>>(ground: &Ground, side: Side, words: &[S]) -> io::Result<()> {
    let host = match side {
        Side::Client => &ground.pair.sender.namespace,
        Side::Server => &ground.pair.receiver.namespace,
    };
    let output = host.command("ip").args(words).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip {:?}: {}",
            words.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
