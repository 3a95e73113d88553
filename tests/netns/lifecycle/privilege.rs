//! pillion with the setuid bit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use crate::common::*;

/// Setuid copy of pillion, called as the user `nobody`.
struct Lent {
    folder: TempDir,
}

impl Lent {
    fn install() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("chmod");
        let lent = Self { folder };
        fs::copy(PILLION, lent.program()).expect("a copy");
        let setuid = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(lent.program(), setuid).expect("chmod");
        lent
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
fn a_setuid_pillion_runs_commands_as_its_caller() {
    needs_root!();
    let run = Lent::install().call(&["run", "--dev", "lo", "--", "id", "-ru"]);
    assert_eq!(stdout(&run), "65534\n", "{}", stderr(&run));
}

#[test]
fn a_setuid_pillion_does_nothing_else_for_its_caller() {
    needs_root!();
    let lent = Lent::install();
    let stats = lent.folder.path().join("stats.json");
    let stats = stats.to_str().expect("UTF-8");
    for (words, what) in [
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
        (&["run", "--rto-min", "8", "--", "id"], "--rto-min"),
        (&["run", "--congestion", "reno", "--", "id"], "--congestion"),
        (
            &["attach", "--dev", "lo", "--dry-run"],
            "all but `pillion run`",
        ),
        (&["status"], "all but `pillion run`"),
    ] {
        let call = lent.call(words);
        assert_eq!(call.status.code(), Some(2), "{words:?}");
        assert_eq!(stdout(&call), "", "{words:?}");
        let remedy = "not with a setuid pillion; call it as root, or by sudo";
        assert_eq!(stderr(&call), format!("pillion: {what}: {remedy}\n"));
    }
    assert!(!fs::exists(stats).expect("a folder"));
}
