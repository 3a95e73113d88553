use std::ffi::OsString;

use anyhow::Result;
use pillion_bpf::{Namespace, NamespaceName};

/// The option that names one network namespace.
#[derive(clap::Args)]
pub struct NetnsArgs {
    /// The network namespace to look in: a name under /run/netns, the PID of a process that is in
    /// it, or a file [default: this one]
    #[arg(long = "netns", value_name = "NAME")]
    name: Option<OsString>,
}

impl NetnsArgs {
    /// The one named, or this one.
    pub fn open(&self) -> Result<Namespace> {
        let name = self.name.as_deref().map(NamespaceName::from);
        let opened = name.map(|name| name.open()).transpose()?;
        Ok(opened.unwrap_or_default())
    }
}
