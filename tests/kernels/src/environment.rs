//! Environments between two hosts: `environments.toml`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::BadInput;

/// Devices, queueing disciplines and options through which streams pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    pub name: String,
    /// Kernel modules, beyond those of every kernel test.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Programs of the host that the commands run.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Shell commands for both ends.
    pub commands: String,
    /// Number of veth pairs between the hosts.
    #[serde(default = "one")]
    pub links: usize,
    /// Protocols that the environment carries.
    #[serde(default = "Ip::all")]
    pub ip: Vec<Ip>,
    /// Command line in front of `pillion-lab`.
    #[serde(default)]
    pub wrapper: Vec<String>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Commands for the sender once a quarter of the messages left.
    pub later: Option<String>,
    /// Puts a generic XDP program that passes every packet to veth0 at both ends.
    #[serde(default)]
    pub xdp: bool,
    /// Whether pillion can bundle here; otherwise it must leave every segment as it is.
    #[serde(default = "yes")]
    pub bundled: bool,
    /// Sockets of the guest's own in place of `pillion-lab traffic`.
    pub sockets: Option<Sockets>,
    /// Counter of the sender's `/proc/net/netstat` that must grow.
    pub counted: Option<String>,
}

/// Version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ip {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// Use of the guest's own sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    /// The receiver's kernel decrypts TLS; messages are parts of records.
    Tls,
    /// A thread of another network namespace gets the sender's socket by SCM_RIGHTS.
    Passed,
    /// The sender sets SO_MAX_PACING_RATE.
    Paced,
}

impl Ip {
    fn all() -> Vec<Self> {
        vec![Self::V4, Self::V6]
    }

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

/// Returns the environments with one of the texts in their names, in the file's order.
pub fn choose(texts: &[String]) -> Result<Vec<Environment>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        environment: Vec<Environment>,
    }
    let file: File =
        toml::from_str(include_str!("../environments.toml")).context("environments.toml")?;
    let mut chosen = file.environment;
    let unmatched = |text: &&String| !chosen.iter().any(|it| it.name.contains(*text));
    if let Some(text) = texts.iter().find(unmatched) {
        let line = format!("`{text}`: not part of any name in environments.toml");
        return Err(BadInput(line).into());
    }
    chosen.retain(|it| texts.iter().any(|text| it.name.contains(text)));
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_chosen_by_part_of_their_name() {
        let names = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|it| (*it).to_owned()).collect();
            choose(&texts).map(|chosen| chosen.into_iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert!(names(&[]).unwrap().is_empty());
        assert!(names(&[""]).unwrap().len() > 2);
        assert_eq!(
            names(&["WireGuard", "ipip"]).unwrap(),
            ["WireGuard", "ipip"]
        );
        let error = names(&["token ring"]).unwrap_err().to_string();
        assert!(error.starts_with("`token ring`: not part"), "{error}");
    }
}
