//! Distribution archive, through `apt` with its own folders. `apt` verifies the archive's
//! signature, and each package's hash against the signed index.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::BadInput;
use crate::architecture::Architecture;
use crate::catalogue::KernelEntry;

/// Suite with its security updates.
pub struct Archive {
    configuration: PathBuf,
}

/// Keyring of trusted signatures.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Environment variable with the mirror to use.
const MIRROR: &str = "PILLION_DEBIAN_MIRROR";

impl Archive {
    /// Creates the folder for the state of `apt`.
    pub fn new(folder: &Path, entry: &KernelEntry) -> Result<Self> {
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(part))
                .with_context(|| format!("{}", folder.display()))?;
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
            Ok::<_, anyhow::Error>(path)
        };
        let status = write("status", "")?;
        let sources = write("sources.list", &sources(&mirror()?, entry))?;
        let text = configuration(folder, &sources, &status, entry.architecture);
        let configuration = write("apt.conf", &text)?;
        Ok(Self { configuration })
    }

    /// Updates the package lists.
    pub fn update(&self) -> Result<()> {
        self.apt("apt-get", &["update", "--error-on=any"]).map(drop)
    }

    /// Returns the version of a package that would be installed.
    pub fn candidate(&self, package: &str) -> Result<String> {
        let stderr = self.apt("apt-cache", &["policy", package])?;
        let version = stderr
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "));
        match version {
            Some(version) if version != "(none)" => Ok(version.to_owned()),
            _ => bail!("the archive has no package {package}"),
        }
    }

    /// Returns the names of the packages that a package version depends on.
    pub fn dependencies(&self, package: &str, version: &str) -> Result<Vec<String>> {
        let of = format!("{package}={version}");
        let record = self.apt("apt-cache", &["show", &of])?;
        let depends = record
            .lines()
            .find_map(|line| line.strip_prefix("Depends: "))
            .unwrap_or_default();
        // Ignores alternatives and versions, which a kernel's packages do not have.
        let names = depends.split(',').map(|one| one.split_whitespace().next());
        Ok(names.flatten().map(str::to_owned).collect())
    }

    /// Returns the names of packages and of everything they need, for an empty host.
    pub fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<String>> {
        let install = ["install", "--simulate", "--no-install-recommends"];
        let stdout = self.apt("apt-get", &[&install, packages].concat())?;
        let names = stdout.lines().filter_map(|it| it.strip_prefix("Inst "));
        let names = names.filter_map(|it| it.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads packages into a folder.
    pub fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        let mut command = self.command("apt-get");
        command.arg("download").args(packages).current_dir(folder);
        succeeded(&mut command).map(drop)
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = succeeded(self.command(program).args(arguments))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LC_ALL", "C")
            .args(["-q", "-c"])
            .arg(&self.configuration);
        command
    }
}

/// Runs a command; an error unless it succeeds.
pub(super) fn succeeded(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("{program}: `scripts/setup kernels` installs the required packages")
    })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut lines = stderr.lines().filter(|line| !line.trim().is_empty());
        bail!("{program}: {}", lines.next().unwrap_or("failed"));
    }
    Ok(output)
}

/// Returns the mirror from the environment, otherwise that of the host's package sources.
fn mirror() -> Result<String> {
    if let Some(configured) = env::var_os(MIRROR).filter(|configured| !configured.is_empty()) {
        return Ok(configured
            .to_string_lossy()
            .trim_end_matches('/')
            .to_owned());
    }
    let mut command = Command::new("apt-get");
    let targets = succeeded(command.args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let targets = String::from_utf8_lossy(&targets.stdout);
    let mut uris = targets.lines().map(|uri| uri.trim_end_matches('/'));
    let found = uris.find(|uri| uri.ends_with("/debian"));
    found.map(str::to_owned).ok_or_else(|| {
        let line = "this host's package sources have no Debian mirror";
        BadInput(format!("{line}; set {MIRROR}=http://.../debian")).into()
    })
}

fn sources(mirror: &str, entry: &KernelEntry) -> String {
    let (suite, architecture) = (&entry.suite, entry.architecture.name());
    let signed = format!("deb [arch={architecture} signed-by={KEYRING}]");
    let mut text = format!("{signed} {mirror} {suite} main\n");
    if entry.security {
        text += &format!("{signed} {mirror}-security {suite}-security main\n");
    }
    text
}

/// Everything that `apt` writes is in the folder. Of the host's configuration it reads only proxies
/// and keys.
fn configuration(
    folder: &Path,
    sources: &Path,
    status: &Path,
    architecture: Architecture,
) -> String {
    let (folder, architecture) = (folder.display(), architecture.name());
    let (sources, status) = (sources.display(), status.display());
    format!(
        "Dir::State \"{folder}\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"{status}\";\n\
         Dir::Cache \"{folder}\";\n\
         Dir::Cache::archives \"{folder}/archives\";\n\
         Dir::Etc::sourcelist \"{sources}\";\n\
         Dir::Etc::sourceparts \"-\";\n\
         Dir::Etc::preferences \"-\";\n\
         Dir::Etc::preferencesparts \"-\";\n\
         APT::Architecture \"{architecture}\";\n\
         APT::Architectures \"{architecture}\";\n\
         APT::Default-Release \"\";\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Acquire::Retries \"3\";\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_updates_are_added_next_to_suite() {
        let mut entry = KernelEntry {
            name: "6.1".to_owned(),
            distribution: "Debian 12".to_owned(),
            architecture: Architecture::Amd64,
            package: String::new(),
            suite: "bookworm".to_owned(),
            security: true,
            without: Vec::new(),
            skipped: Vec::new(),
        };
        let text = sources("http://mirror/debian", &entry);
        assert!(text.contains(" http://mirror/debian bookworm main\n"));
        assert!(text.contains(" http://mirror/debian-security bookworm-security main\n"));
        entry.security = false;
        assert_eq!(sources("http://mirror/debian", &entry).lines().count(), 1);
    }
}
