//! The distribution's archive, through `apt` with folders of its own. `apt` checks the archive's
//! signature, and each package's hash against the index that is signed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::BadInput;
use crate::catalogue::Wanted;

/// One suite, with its security updates.
pub struct Archive {
    configuration: PathBuf,
}

/// Whose signatures count.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Names the mirror to take packages from.
const MIRROR: &str = "PILLION_DEBIAN_MIRROR";

impl Archive {
    /// Prepares the folder that `apt` keeps its state in.
    pub fn new(folder: &Path, wanted: &Wanted) -> Result<Self> {
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
        let sources = write("sources.list", &sources(&mirror()?, wanted))?;
        let text = configuration(folder, &sources, &status);
        let configuration = write("apt.conf", &text)?;
        Ok(Self { configuration })
    }

    /// Asks what the archive has now.
    pub fn update(&self) -> Result<()> {
        self.apt("apt-get", &["update", "--error-on=any"]).map(drop)
    }

    /// The version of a package that would be installed.
    pub fn candidate(&self, package: &str) -> Result<String> {
        let said = self.apt("apt-cache", &["policy", package])?;
        let version = said
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "));
        match version {
            Some(version) if version != "(none)" => Ok(version.to_owned()),
            _ => bail!("the archive has no package {package}"),
        }
    }

    /// What a package of this version depends on, by name.
    pub fn dependencies(&self, package: &str, version: &str) -> Result<Vec<String>> {
        let of = format!("{package}={version}");
        let record = self.apt("apt-cache", &["show", &of])?;
        let depends = record
            .lines()
            .find_map(|line| line.strip_prefix("Depends: "))
            .unwrap_or_default();
        // Alternatives and versions do not matter: a kernel's parts have neither.
        let names = depends.split(',').map(|one| one.split_whitespace().next());
        Ok(names.flatten().map(str::to_owned).collect())
    }

    /// Puts packages' files into a folder.
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

/// Runs a command to its end, which must be a good one.
pub(super) fn succeeded(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("{program}: `scripts/setup kernels` installs what is needed"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let mut lines = said.lines().filter(|line| !line.trim().is_empty());
        bail!("{program}: {}", lines.next().unwrap_or("failed"));
    }
    Ok(output)
}

/// The named one, else that of the host's own package sources.
fn mirror() -> Result<String> {
    if let Some(named) = env::var_os(MIRROR).filter(|named| !named.is_empty()) {
        return Ok(named.to_string_lossy().trim_end_matches('/').to_owned());
    }
    let mut command = Command::new("apt-get");
    let targets = succeeded(command.args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let targets = String::from_utf8_lossy(&targets.stdout);
    let mut uris = targets.lines().map(|uri| uri.trim_end_matches('/'));
    let found = uris.find(|uri| uri.ends_with("/debian"));
    found.map(str::to_owned).ok_or_else(|| {
        let line = "no mirror of Debian among this host's package sources";
        BadInput(format!("{line}; name one: {MIRROR}=http://.../debian")).into()
    })
}

fn sources(mirror: &str, wanted: &Wanted) -> String {
    let suite = &wanted.suite;
    let signed = format!("deb [arch=amd64 signed-by={KEYRING}]");
    let mut text = format!("{signed} {mirror} {suite} main\n");
    if wanted.security {
        text += &format!("{signed} {mirror}-security {suite}-security main\n");
    }
    text
}

/// All that `apt` would write lies in the folder, and nothing of the host's is read but its
/// proxies and keys.
fn configuration(folder: &Path, sources: &Path, status: &Path) -> String {
    let folder = folder.display();
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
         APT::Architecture \"amd64\";\n\
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
    fn security_updates_lie_beside_the_suite() {
        let mut wanted = Wanted {
            name: "6.1".to_owned(),
            distribution: "Debian 12".to_owned(),
            suite: "bookworm".to_owned(),
            security: true,
            without: Vec::new(),
            left_out: Vec::new(),
        };
        let text = sources("http://mirror/debian", &wanted);
        assert!(text.contains(" http://mirror/debian bookworm main\n"));
        assert!(text.contains(" http://mirror/debian-security bookworm-security main\n"));
        wanted.security = false;
        assert_eq!(sources("http://mirror/debian", &wanted).lines().count(), 1);
    }
}
