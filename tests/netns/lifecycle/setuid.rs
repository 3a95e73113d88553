//! pillion with the setuid bit or with file capabilities.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::{fs, io};

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

/// Gives a file CAP_DAC_OVERRIDE, as `setcap cap_dac_override+ep` does.
fn set_file_capability(file: &Path) {
    // struct vfs_cap_data of Linux, version 2: the effective flag, then the permitted set.
    let mut value = [0u8; 20];
    (value[0], value[3], value[4]) = (1, 2, 1 << 1);
    let file = CString::new(file.as_os_str().as_bytes()).expect("no zero byte");
    let name = c"security.capability";
    // SAFETY: both strings end with a zero byte, and the length is that of the value.
    let set = unsafe { libc::setxattr(file.as_ptr(), name.as_ptr(), value.as_ptr().cast(), 20, 0) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

#[test]
fn file_capabilities_are_refused_for_other_users_than_root() {
    needs_root!();
    let install = SetuidInstall::install();
    let program = install.program();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
    set_file_capability(&program);
    let stats = install.folder.path().join("stats.json");
    let stats = stats.to_str().expect("UTF-8");
    for words in [
        &["run", "--dev", "lo", "--stats", stats, "--", "id"][..],
        &["attach", "--dev", "lo", "--stats", stats],
        &["status"],
    ] {
        let call = install.call(words);
        assert_eq!(call.status.code(), Some(2), "{words:?}");
        assert_eq!(
            stderr(&call),
            "pillion: error: the binary has file capabilities, which every user would share; remove \
             them (setcap -r FILE), and run pillion as root, with sudo or as a service\n"
        );
    }
    assert!(!fs::exists(stats).expect("a folder"));
    let mut by_root = namespace_with_loopback().command(program.to_str().expect("UTF-8"));
    by_root.args(["run", "--dev", "lo", "--", "true"]);
    assert!(by_root.status().expect("it runs").success());
}
