//! As whom the command runs: pillion needs privilege, the command does not.

use std::env;
use std::ffi::CString;
use std::io;

use anyhow::{Context, Result};
use nix::unistd::{self, Gid, Uid, initgroups, setgid, setuid};
use pillion_cli::settings::BadInput;

use crate::lent::{is_lent, refuse};

/// A user other than the one pillion runs as.
#[derive(Clone)]
pub struct User {
    name: CString,
    home: String,
    uid: Uid,
    gid: Gid,
}

impl User {
    /// The user named, or the caller of a setuid pillion, or of sudo; `None` if this process runs
    /// as that user anyway.
    pub fn for_command(name: Option<&str>) -> Result<Option<Self>> {
        if name.is_some() {
            refuse("--user")?;
        }
        let found = match (name, calling_uid()) {
            (Some(name), _) => unistd::User::from_name(name)
                .with_context(|| format!("look up the user {name}"))?
                .ok_or_else(|| BadInput(format!("--user: there is no user `{name}`")))?,
            (None, Some(uid)) => unistd::User::from_uid(uid)
                .with_context(|| format!("look up the user {uid}"))?
                .ok_or_else(|| {
                    BadInput(format!("no user has the id {uid}; name one with --user"))
                })?,
            (None, None) => return Ok(None),
        };
        if found.uid == Uid::effective() && found.uid == Uid::current() {
            return Ok(None);
        }
        Ok(Some(Self {
            name: CString::new(found.name)?,
            home: found.dir.to_string_lossy().into_owned(),
            uid: found.uid,
            gid: found.gid,
        }))
    }

    /// Variables of the environment that tell the command which user it runs as.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let name = self.name.to_string_lossy().into_owned();
        [
            ("USER", name.clone()),
            ("LOGNAME", name),
            ("HOME", self.home.clone()),
        ]
    }

    /// Makes this process the user's, and so gives up its privilege for good.
    pub fn become_it(&self) -> io::Result<()> {
        initgroups(&self.name, self.gid)?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        Ok(())
    }
}

fn calling_uid() -> Option<Uid> {
    if is_lent() {
        return Some(Uid::current());
    }
    if !Uid::effective().is_root() {
        return None;
    }
    env::var("SUDO_UID").ok()?.parse().ok().map(Uid::from_raw)
}
