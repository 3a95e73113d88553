//! Kernels to test and the work on each (`kernels.toml`), and environments between two hosts
//! (`environments.toml`).

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::BadInput;
use crate::architecture::Architecture;

/// Content of `kernels.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Names of the modules to insert.
    pub modules: Vec<String>,
    /// Prefixes of the names of wire tests that measure time.
    pub timed: Vec<String>,
    /// Wire tests that no emulated kernel runs.
    pub skipped: Vec<SkippedTests>,
    #[serde(rename = "kernel")]
    pub kernels: Vec<KernelEntry>,
}

/// Kernel in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelEntry {
    /// Name on the command line.
    pub name: String,
    /// Distribution, as shown in reports.
    pub distribution: String,
    #[serde(default)]
    pub architecture: Architecture,
    /// Package that depends on the suite's newest kernel.
    #[serde(default = "default_package")]
    pub package: String,
    /// Suite of the archive that contains it.
    pub suite: String,
    /// True if the suite has a separate archive of security updates.
    pub security: bool,
    /// CPU features to disable in the emulated processor.
    #[serde(default)]
    pub without: Vec<String>,
    /// Wire tests that this kernel cannot pass; [`Catalogue::load`] adds the tests skipped on all
    /// kernels.
    #[serde(default)]
    pub skipped: Vec<SkippedTests>,
}

/// Tests that are skipped, with a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedTests {
    /// Prefix of their names.
    pub tests: String,
    pub reason: String,
}

impl Catalogue {
    /// Loads the catalogue of this source tree.
    pub fn load() -> Result<Self> {
        let mut catalogue: Self =
            toml::from_str(include_str!("../kernels.toml")).context("kernels.toml")?;
        for kernel in &mut catalogue.kernels {
            kernel.skipped.extend_from_slice(&catalogue.skipped);
        }
        Ok(catalogue)
    }

    /// Returns the named kernels in the file's order; without names, all.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&KernelEntry>> {
        if let Some(unknown) = names.iter().find(|name| !self.has(name)) {
            let all: Vec<_> = self.kernels.iter().map(|it| it.name.as_str()).collect();
            let all = all.join(", ");
            let line = format!("{unknown}: no such kernel in kernels.toml; choose from {all}");
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

/// Devices, queueing disciplines and options on the path of streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    pub name: String,
    /// Kernel modules in addition to the catalogue's.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Host programs that the commands run.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Shell commands for both ends.
    pub commands: String,
    /// Number of veth pairs between the hosts.
    #[serde(default = "default_one")]
    pub links: usize,
    /// IP versions that the environment supports.
    #[serde(default = "Ip::all")]
    pub ip: Vec<Ip>,
    /// Command line before `pillion-lab`.
    #[serde(default)]
    pub wrapper: Vec<String>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Commands for the sender after a quarter of the messages left.
    pub later: Option<String>,
    /// Attaches a generic XDP program that passes every packet to veth0 at both ends.
    #[serde(default)]
    pub xdp: bool,
    /// Whether pillion can bundle here; otherwise it must leave every segment as it is.
    #[serde(default = "default_true")]
    pub bundled: bool,
    /// The guest's own sockets, used instead of `pillion-lab traffic`.
    pub sockets: Option<Sockets>,
    /// Counter of the sender's `/proc/net/netstat` that must grow.
    pub counted: Option<String>,
}

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ip {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// Kind of the guest's own sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    /// The receiver's kernel decrypts TLS; messages are parts of records.
    Tls,
    /// A thread in another network namespace receives the sender's socket by SCM_RIGHTS.
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

/// The cloud flavour: the same source and configuration as the default flavour, with fewer drivers.
fn default_package() -> String {
    "linux-image-cloud-amd64".to_owned()
}

fn default_true() -> bool {
    true
}

fn default_one() -> usize {
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
    fn global_skips_apply_to_every_kernel() {
        let catalogue = Catalogue::load().unwrap();
        assert!(!catalogue.skipped.is_empty());
        for kernel in &catalogue.kernels {
            assert!(kernel.skipped.ends_with(&catalogue.skipped));
        }
    }

    #[test]
    fn listed_tests_exist() {
        let catalogue = Catalogue::load().unwrap();
        let kernels = catalogue.kernels.iter();
        let skipped = kernels.flat_map(|kernel| &kernel.skipped);
        let skipped = skipped.map(|it| it.tests.as_str());
        let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire");
        for name in skipped.chain(catalogue.timed.iter().map(String::as_str)) {
            let (modules, function) = name.rsplit_once("::").unwrap();
            let file = wire.join(modules.replace("::", "/"));
            let files = [file.with_extension("rs"), file.join("mod.rs")];
            let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let text = text.unwrap_or_else(|| panic!("{name}: no such tests"));
            assert!(text.contains(&format!("\nfn {function}")), "{name}");
        }
    }

    #[test]
    fn kernels_are_chosen_by_name_and_unknown_is_error() {
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
    fn environments_are_chosen_by_part_of_name() {
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
