//! `pillion check` compared with what pillion can do afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::*;

/// Installed copy that another user runs with the three capabilities that bundling needs.
struct CapabilityInstall {
    folder: TempDir,
    namespace: pillion_lab::Namespace,
}

impl CapabilityInstall {
    fn install() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(PILLION, folder.path().join("pillion")).unwrap();
        let namespace = namespace_with_loopback();
        Self { folder, namespace }
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        const CAPABILITIES: &str = "-all,+bpf,+perfmon,+net_admin";
        let mut command = self.namespace.command("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
        command.args(["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES]);
        command.args(["--bounding-set", CAPABILITIES]);
        command
            .arg(self.folder.path().join("pillion"))
            .args(arguments);
        reset_signals(&mut command);
        command
    }

    fn check(&self) -> Output {
        self.command(&["check"]).output().unwrap()
    }
}

#[test]
fn check_passes_for_user_with_capabilities() {
    needs_root!();
    let install = CapabilityInstall::install();
    let attach = ["attach", "--all", "--dev", "lo"];
    let mut attach = install.command(&attach).spawn().unwrap();
    await_attached(attach.id());
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());

    let check = install.check();
    let report = stdout(&check);
    assert!(!report.contains("MISSING"), "{report}");
    assert!(check.status.success(), "{report}");
    let not_tested = "warning  attaching       not tested: creating a network namespace for the test \
                      requires CAP_SYS_ADMIN";
    assert!(report.contains(not_tested), "{report}");
}

#[test]
fn check_refers_to_lines_above_only_if_some_are_missing() {
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
    let report = stdout(&check.output().unwrap());
    let mut is_missing = false;
    for line in report.lines() {
        if line.contains("lines above") {
            assert!(is_missing, "{report}");
        }
        is_missing |= line.starts_with("MISSING");
    }
    assert!(is_missing, "{report}");
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
fn read_only_cgroups_fail_run_and_pass_check() {
    needs_root!();
    let run = with_read_only_cgroups("run --dev lo -- echo started");
    let message = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{message}");
    assert_eq!(stdout(&run), "");
    assert!(
        message.contains(
            ": mounted read-only, but `pillion run` creates a cgroup; `pillion attach` does not, \
             or mount it for writing: mount -o remount,rw /"
        ),
        "{message}"
    );
    let check = with_read_only_cgroups("check");
    let report = stdout(&check);
    assert!(check.status.success(), "{report}");
    let own = report
        .lines()
        .find(|line| line.contains("own cgroup"))
        .unwrap();
    assert!(own.starts_with("warning"), "{report}");
}

#[test]
fn check_warns_of_program_that_reads_redundant_bytes() {
    needs_root!();
    let _program = pillion_tests::load_verdict(c"reads_twice");
    let check = namespace_with_loopback()
        .run(PILLION, &["check"], "")
        .unwrap();
    let report = stdout(&check);
    let line = report
        .lines()
        .find(|line| line.contains("receivers"))
        .expect(&report);
    assert!(
        line.starts_with("warning") && line.contains("reads_twice"),
        "{report}"
    );
    assert!(check.status.success(), "{report}");
}

#[test]
fn non_utf8_mount_point_does_not_fail_check() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let script = "cd \"$1\" && name=$(printf '\\344') && mkdir \"$name\" && \
                  mount -t tmpfs none \"$name\" && exec \"$0\" check";
    let mut shell = namespace_with_loopback().command("unshare");
    shell.args(["--mount", "sh", "-c", script, PILLION]);
    let check = shell.arg(folder.path()).output().unwrap();
    let report = stdout(&check);
    assert!(check.status.success(), "{report} {}", stderr(&check));
}

#[test]
fn missing_cgroup2_remedy_is_printed_once() {
    needs_root!();
    let mount = pillion_bpf::cgroup2_mount().unwrap();
    let script = "umount -l \"$1\" && exec \"$0\" check";
    let mut shell = namespace_with_loopback().command("unshare");
    shell
        .args(["--mount", "sh", "-c", script, PILLION])
        .arg(mount);
    let report = stdout(&shell.output().unwrap());
    let line = report
        .lines()
        .find(|line| line.contains("cgroup v2"))
        .unwrap();
    assert!(line.starts_with("MISSING"), "{report}");
    assert!(line.contains("mkdir -p"), "{line}");
    assert_eq!(report.matches("mount -t cgroup2").count(), 1, "{report}");
    assert!(
        !report.contains("`pillion attach` works without it"),
        "{report}"
    );
}
