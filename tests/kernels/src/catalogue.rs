//! Which kernels there are and what is run on each (`kernels.toml`), and environments between two hosts
//! (`environments.toml`).

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::BadInput;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The package that depends on a suite's newest kernel.
    pub package: String,
    /// Modules to be inserted, by name.
    pub modules: Vec<String>,
    /// Beginnings of names of the tests of the wire that measure time.
    pub timed: Vec<String>,
    /// Tests of the wire that no emulated kernel runs.
    pub left_out: Vec<LeftOut>,
    #[serde(rename = "kernel")]
    pub kernels: Vec<Wanted>,
}

/// A kernel as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What it is called here.
    pub name: String,
    /// Whose it is, for people.
    pub distribution: String,
    /// The suite of the archive that has it.
    pub suite: String,
    /// The suite has security updates beside it.
    pub security: bool,
    /// Features that the emulated processor must not have.
    #[serde(default)]
    pub without: Vec<String>,
    /// Tests of the wire that this kernel cannot pass, and those left out of all.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// Tests that are not run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// The beginning of their names.
    pub tests: String,
    pub reason: String,
}

impl Catalogue {
    /// The one that belongs to this source.
    pub fn load() -> Result<Self> {
        let mut catalogue: Self =
            toml::from_str(include_str!("../kernels.toml")).context("kernels.toml")?;
        for kernel in &mut catalogue.kernels {
            kernel.left_out.extend_from_slice(&catalogue.left_out);
        }
        Ok(catalogue)
    }

    /// Those named, in the file's order; without names, all.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&Wanted>> {
        if let Some(unknown) = names.iter().find(|name| !self.has(name)) {
            let all: Vec<_> = self.kernels.iter().map(|it| it.name.as_str()).collect();
            let all = all.join(", ");
            let line = format!("{unknown}: no such kernel in kernels.toml; there are {all}");
            return Err(BadInput(line).into());
        }
        let kernels = self.kernels.iter();
        let chosen = kernels.filter(|it| names.is_empty() || names.contains(&it.name));
        Ok(chosen.collect())
    }

    fn has(&self, name: &str) -> bool {
        self.kernels.iter().any(|kernel| kernel.name == name)
    }
}

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
pub fn choose_environments(texts: &[String]) -> Result<Vec<Environment>> {
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
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_left_out_of_all_is_left_out_of_each() {
        let catalogue = Catalogue::load().unwrap();
        assert!(!catalogue.left_out.is_empty());
        for kernel in &catalogue.kernels {
            assert!(kernel.left_out.ends_with(&catalogue.left_out));
        }
    }

    #[test]
    fn tests_that_are_named_are_there() {
        let catalogue = Catalogue::load().unwrap();
        let kernels = catalogue.kernels.iter();
        let left_out = kernels.flat_map(|kernel| &kernel.left_out);
        let left_out = left_out.map(|it| it.tests.as_str());
        let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire");
        for name in left_out.chain(catalogue.timed.iter().map(String::as_str)) {
            let (modules, function) = name.rsplit_once("::").unwrap();
            let file = wire.join(modules.replace("::", "/"));
            let files = [file.with_extension("rs"), file.join("mod.rs")];
            let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let text = text.unwrap_or_else(|| panic!("{name}: no such tests"));
            assert!(text.contains(&format!("\nfn {function}")), "{name}");
        }
    }

    #[test]
    fn kernels_are_chosen_by_name_and_a_wrong_name_is_told() {
        let catalogue = Catalogue::load().unwrap();
        assert_eq!(
            catalogue.choose(&[]).unwrap().len(),
            catalogue.kernels.len()
        );
        let first = catalogue.kernels[0].name.clone();
        let chosen = catalogue.choose(std::slice::from_ref(&first)).unwrap();
        assert_eq!(chosen, [&catalogue.kernels[0]]);
        let error = catalogue.choose(&["2.4".to_owned()]).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with("2.4: no such kernel"), "{line}");
        assert!(line.contains(&first), "{line}");
    }

    #[test]
    fn environments_are_chosen_by_part_of_their_name() {
        let names = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|it| (*it).to_owned()).collect();
            choose_environments(&texts)
                .map(|chosen| chosen.into_iter().map(|it| it.name).collect::<Vec<_>>())
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
