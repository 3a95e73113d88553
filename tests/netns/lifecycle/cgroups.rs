//! The command's cgroup, with other cgroups inside and next to it.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{CgroupSandbox, ChildGuard, child_cgroups, run};
use crate::common::*;

/// Returns the cgroup membership of a process.
fn cgroup_membership(process: Pid) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).expect("it runs")
}

#[test]
fn cgroups_of_command_are_removed_and_processes_survive() {
    needs_root!();
    let sandbox = CgroupSandbox::create("left");
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let script = format!(
        "cg={}$(sed -n s/^0:://p /proc/self/cgroup); mkdir -p $cg/a/b; sleep 300 > /dev/null 2>&1 & \
         echo $! > $cg/a/b/cgroup.procs; echo $!; exit 6",
        mount.display()
    );
    let mut command = run(&["sh", "-c", &script]);
    sandbox.assign(command.stderr(Stdio::piped()));
    let output = command.output().expect("it runs");
    let sleeper: i32 = stdout(&output).trim().parse().expect("a PID");
    let remaining = sandbox.children();
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).expect("it survives");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(remaining.is_empty(), "{remaining:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn cgroup_of_surviving_inner_run_stays_and_is_reported() {
    needs_root!();
    let sandbox = CgroupSandbox::create("inner");
    let folder = tempfile::tempdir().expect("a folder");
    let mark = |name: &str| folder.path().join(name).display().to_string();
    let (started, end) = (mark("started"), mark("end"));
    let inner = format!("touch {started}; until [ -e {end} ]; do sleep 0.05; done");
    let outer = format!(
        "{PILLION} run --dev lo -- sh -c '{inner}' > /dev/null 2>&1 & \
         until [ -e {started} ]; do sleep 0.05; done; exit 6"
    );
    let mut command = run(&["sh", "-c", &outer]);
    sandbox.assign(&mut command);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(
        message.contains(
            ": another pillion is running in it; the cgroups above it remain until a pillion \
             starts after it has ended"
        ),
        "{message}"
    );
    let [outer] = &sandbox.children()[..] else {
        panic!("the outer cgroup stays");
    };
    let [inner] = &child_cgroups(outer)[..] else {
        panic!("the inner cgroup stays");
    };
    let procs = fs::read_to_string(inner.join("cgroup.procs")).expect("a cgroup");
    assert!(!procs.is_empty(), "its command is still in it");
    fs::write(end, "").expect("a file");
    eventually("the inner run has removed its cgroup", || !inner.exists());
    let mut next = run(&["true"]);
    sandbox.assign(&mut next);
    assert!(next.status().expect("it runs").success());
    assert!(
        sandbox.children().is_empty(),
        "the next run removes the rest"
    );
}

/// Starts pillion in its own PID namespace, where a shell chooses its PID.
fn in_pid_namespace(sandbox: &CgroupSandbox, last_pid: u32) -> ChildGuard {
    let namespace = namespace_with_loopback();
    let mut unshare = namespace.command("unshare");
    let script = format!(
        "echo {last_pid} > /proc/sys/kernel/ns_last_pid; {PILLION} run --dev lo -- sleep 300; exit"
    );
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.args(["sh", "-c", &script]);
    sandbox.assign(unshare.stderr(Stdio::null()));
    ChildGuard::spawn(&mut unshare)
}

#[test]
fn runs_with_equal_pids_use_separate_cgroups() {
    needs_root!();
    let sandbox = CgroupSandbox::create("same");
    let _both = [
        in_pid_namespace(&sandbox, 500),
        in_pid_namespace(&sandbox, 500),
    ];
    eventually("both commands run", || {
        let busy = |path: &std::path::PathBuf| {
            fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|it| !it.is_empty())
        };
        sandbox.children().iter().filter(|path| busy(path)).count() == 2
    });
}

#[test]
fn cgroup_of_run_in_other_pid_namespace_is_left_alone() {
    needs_root!();
    let sandbox = CgroupSandbox::create("unknown");
    let max = fs::read_to_string("/proc/sys/kernel/pid_max").expect("a number");
    let max: u32 = max.trim().parse().expect("a number");
    let unknown = (300..max).find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    let _inner = in_pid_namespace(&sandbox, unknown.expect("a number") - 1);
    let mut processes = Vec::new();
    eventually("its command runs", || {
        let busy = sandbox.children().into_iter().next();
        let procs = busy.and_then(|it| fs::read_to_string(it.join("cgroup.procs")).ok());
        processes = procs
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        processes.len() == 1
    });
    let command = Pid::from_raw(processes[0].parse().expect("a PID"));
    let before = cgroup_membership(command);
    let mut next = run(&["true"]);
    sandbox.assign(&mut next);
    assert!(next.status().expect("it runs").success());
    assert_eq!(cgroup_membership(command), before);
}

#[test]
fn run_in_threaded_cgroup_fails_with_one_line() {
    needs_root!();
    let sandbox = CgroupSandbox::create("threaded");
    let threads = sandbox.path().join("threads");
    fs::create_dir(&threads).expect("a cgroup");
    fs::write(threads.join("cgroup.type"), "threaded").expect("threads may be apart");
    let mut command = run(&["true"]);
    sandbox.assign(command.stderr(Stdio::piped()));
    let output = command.output().expect("it runs");
    fs::remove_dir(&threads).expect("it is empty");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("is threaded"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(sandbox.children().is_empty());
}
