use std::ffi::OsString;

use anyhow::Result;
use pillion_bpf::{Namespace, NamespaceName};

/// Option for a network namespace.
#[derive(clap::Args)]
pub struct NetnsArgs {
    /// Network namespace: a name under /run/netns, the PID of a process in it, or a file [default:
    /// the current one]
    #[arg(long = "netns", value_name = "NAME")]
    name: Option<OsString>,
}

impl NetnsArgs {
    /// Opens the namespace, by default the current one.
    pub fn open(&self) -> Result<Namespace> {
        let name = self.name.as_deref().map(NamespaceName::from);
        let opened = name.map(|name| name.open()).transpose()?;
        Ok(opened.unwrap_or_default())
    }
}
