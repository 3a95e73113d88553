//! `pillion check` compared with what pillion can do afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::*;

/// Installed copy that another user runs with the three capabilities that bundling needs.
struct Granted {
    folder: TempDir,
    namespace: pillion_lab::Namespace,
}

impl Granted {
    fn install() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(PILLION, folder.path().join("pillion")).unwrap();
        let namespace = namespace_with_loopback();
        Self { folder, namespace }
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        const GRANTED: &str = "-all,+bpf,+perfmon,+net_admin";
        let mut command = self.namespace.command("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
        command.args(["--inh-caps", GRANTED, "--ambient-caps", GRANTED]);
        command.args(["--bounding-set", GRANTED]);
        command
            .arg(self.folder.path().join("pillion"))
            .args(arguments);
        hears_all_signals(&mut command);
        command
    }

    fn check(&self) -> Output {
        self.command(&["check"]).output().unwrap()
    }
}

#[test]
fn where_another_user_may_attach_nothing_is_said_to_be_missing() {
    needs_root!();
    let granted = Granted::install();
    let attach = ["attach", "--all", "--dev", "lo"];
    let mut attach = granted.command(&attach).spawn().unwrap();
    await_attached(attach.id());
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());

    let check = granted.check();
    let told = stdout(&check);
    assert!(!told.contains("MISSING"), "{told}");
    assert!(check.status.success(), "{told}");
    assert!(told.contains("not tried: "), "{told}");
}

#[test]
fn lines_above_are_named_only_where_there_are_some() {
    needs_root!();
    let mut check = namespace_with_loopback().command("setpriv");
    check.args([
        "--bounding-set",
        "-all",
        "--inh-caps",
        "-all",
        PILLION,
        "check",
    ]);
    let told = stdout(&check.output().unwrap());
    let mut is_missing = false;
    for line in told.lines() {
        if line.contains("lines above") {
            assert!(is_missing, "{told}");
        }
        is_missing |= line.starts_with("MISSING");
    }
    assert!(is_missing, "{told}");
}

/// Runs a pillion command with read-only cgroups, as in a container.
fn with_read_only_cgroups(command: &str) -> Output {
    let script = format!("mount -o remount,bind,ro \"$1\" && exec \"$0\" {command}");
    let mount = pillion_bpf::cgroup2_mount().unwrap();
    let mut shell = namespace_with_loopback().command("unshare");
    shell
        .args(["--mount", "sh", "-c", &script, PILLION])
        .arg(mount);
    shell.output().unwrap()
}

#[test]
fn on_read_only_cgroups_run_says_what_to_do_and_check_that_attach_works() {
    needs_root!();
    let run = with_read_only_cgroups("run --dev lo -- echo began");
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert_eq!(stdout(&run), "");
    assert!(
        said.contains("read-only") && said.contains("`pillion attach` needs none"),
        "{said}"
    );
    let check = with_read_only_cgroups("check");
    let told = stdout(&check);
    assert!(check.status.success(), "{told}");
    let own = told
        .lines()
        .find(|line| line.contains("own cgroup"))
        .unwrap();
    assert!(own.starts_with("warning"), "{told}");
}

#[test]
fn a_program_that_would_show_a_receiver_redundant_bytes_is_warned_of() {
    needs_root!();
    let _program = pillion_tests::load_verdict(c"reads_twice");
    let check = namespace_with_loopback()
        .run(PILLION, &["check"], "")
        .unwrap();
    let told = stdout(&check);
    let line = told
        .lines()
        .find(|line| line.contains("receivers"))
        .expect(&told);
    assert!(
        line.starts_with("warning") && line.contains("reads_twice"),
        "{told}"
    );
    assert!(check.status.success(), "{told}");
}

#[test]
fn a_mount_point_that_is_no_text_is_in_nobodys_way() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let script = "cd \"$1\" && name=$(printf '\\344') && mkdir \"$name\" && \
                  mount -t tmpfs none \"$name\" && exec \"$0\" check";
    let mut shell = namespace_with_loopback().command("unshare");
    shell.args(["--mount", "sh", "-c", script, PILLION]);
    let check = shell.arg(folder.path()).output().unwrap();
    let told = stdout(&check);
    assert!(check.status.success(), "{told} {}", stderr(&check));
}

#[test]
fn without_cgroup2_the_remedy_is_told_once() {
    needs_root!();
    let mount = pillion_bpf::cgroup2_mount().unwrap();
    let script = "umount -l \"$1\" && exec \"$0\" check";
    let mut shell = namespace_with_loopback().command("unshare");
    shell
        .args(["--mount", "sh", "-c", script, PILLION])
        .arg(mount);
    let told = stdout(&shell.output().unwrap());
    let line = told
        .lines()
        .find(|line| line.contains("cgroup v2"))
        .unwrap();
    assert!(line.starts_with("MISSING"), "{told}");
    assert!(line.contains("mkdir -p"), "{line}");
    assert_eq!(told.matches("mount -t cgroup2").count(), 1, "{told}");
    assert!(!told.contains("does without"), "{told}");
}
