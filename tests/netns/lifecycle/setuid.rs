//! pillion with the setuid bit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use crate::common::*;

/// Setuid copy of pillion, called as the user `nobody`.
struct SetuidInstall {
    folder: TempDir,
}

impl SetuidInstall {
    fn install() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("chmod");
        let install = Self { folder };
        fs::copy(PILLION, install.program()).expect("a copy");
        let setuid = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(install.program(), setuid).expect("chmod");
        install
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("pillion")
    }

    fn call(&self, words: &[&str]) -> Output {
        let mut call = namespace_with_loopback().command("setpriv");
        call.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
        call.arg(self.program()).args(words);
        call.output().expect("it runs")
    }
}

#[test]
fn setuid_run_executes_command_as_caller() {
    needs_root!();
    let run = SetuidInstall::install().call(&["run", "--dev", "lo", "--", "id", "-ru"]);
    assert_eq!(stdout(&run), "65534\n", "{}", stderr(&run));
}

#[test]
fn setuid_mode_rejects_all_other_commands_and_options() {
    needs_root!();
    let install = SetuidInstall::install();
    let stats = install.folder.path().join("stats.json");
    let stats = stats.to_str().expect("UTF-8");
    for (words, expected) in [
        (
            &["run", "--dev", "lo", "--user", "root", "--", "id"][..],
            "--user",
        ),
        (
            &["run", "--dev", "lo", "--stats", stats, "--", "id"],
            "--stats",
        ),
        (
            &["run", "--unsafe", "--reaction", "none", "--", "id"],
            "--unsafe",
        ),
        (&["run", "--rto-min", "8ms", "--", "id"], "--rto-min"),
        (&["run", "--congestion", "reno", "--", "id"], "--congestion"),
        (
            &["attach", "--dev", "lo", "--dry-run"],
            "commands other than `pillion run`",
        ),
        (&["status"], "commands other than `pillion run`"),
    ] {
        let call = install.call(words);
        assert_eq!(call.status.code(), Some(2), "{words:?}");
        assert_eq!(stdout(&call), "", "{words:?}");
        let remedy = "not allowed for a setuid pillion; run it as root, or with sudo";
        assert_eq!(
            stderr(&call),
            format!("pillion: error: {expected}: {remedy}\n")
        );
    }
    assert!(!fs::exists(stats).expect("a folder"));
}
