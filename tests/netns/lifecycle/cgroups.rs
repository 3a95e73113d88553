//! The command's cgroup, with other cgroups inside and next to it.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Ground, Running, folders_in, run};
use crate::common::*;

/// Returns the cgroup membership of a process.
fn place(process: Pid) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).expect("it runs")
}

#[test]
fn cgroups_that_the_command_has_left_are_removed_and_processes_in_them_live_on() {
    needs_root!();
    let ground = Ground::prepare("left");
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let script = format!(
        "cg={}$(sed -n s/^0:://p /proc/self/cgroup); mkdir -p $cg/a/b; sleep 300 > /dev/null 2>&1 & \
         echo $! > $cg/a/b/cgroup.procs; echo $!; exit 6",
        mount.display()
    );
    let mut command = run(&["sh", "-c", &script]);
    ground.place(command.stderr(Stdio::piped()));
    let output = command.output().expect("it runs");
    let sleeper: i32 = stdout(&output).trim().parse().expect("a PID");
    let left = ground.folders();
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).expect("it survives");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn the_cgroup_of_an_inner_pillion_that_outlives_the_outer_one_stays_and_is_said() {
    needs_root!();
    let ground = Ground::prepare("inner");
    let folder = tempfile::tempdir().expect("a folder");
    let mark = |name: &str| folder.path().join(name).display().to_string();
    let (begun, end) = (mark("begun"), mark("end"));
    let inner = format!("touch {begun}; until [ -e {end} ]; do sleep 0.05; done");
    let outer = format!(
        "{PILLION} run --dev lo -- sh -c '{inner}' > /dev/null 2>&1 & \
         until [ -e {begun} ]; do sleep 0.05; done; exit 6"
    );
    let mut command = run(&["sh", "-c", &outer]);
    ground.place(&mut command);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains(": another pillion is at work in it"),
        "{said}"
    );
    let [outer] = &ground.folders()[..] else {
        panic!("the outer cgroup stays");
    };
    let [inner] = &folders_in(outer)[..] else {
        panic!("the inner cgroup stays");
    };
    let procs = fs::read_to_string(inner.join("cgroup.procs")).expect("a cgroup");
    assert!(!procs.is_empty(), "its command is still in it");
    fs::write(end, "").expect("a file");
    eventually("the inner run has removed its cgroup", || !inner.exists());
    let mut next = run(&["true"]);
    ground.place(&mut next);
    assert!(next.status().expect("it runs").success());
    assert!(ground.folders().is_empty(), "the next run removes the rest");
}

/// Starts pillion in its own PID namespace, where a shell chooses its PID.
fn in_pid_namespace(ground: &Ground, last_pid: u32) -> Running {
    let namespace = namespace_with_loopback();
    let mut unshare = namespace.command("unshare");
    let script = format!(
        "echo {last_pid} > /proc/sys/kernel/ns_last_pid; {PILLION} run --dev lo -- sleep 300; exit"
    );
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.args(["sh", "-c", &script]);
    ground.place(unshare.stderr(Stdio::null()));
    Running::begin(&mut unshare)
}

#[test]
fn pillions_with_the_same_process_id_do_not_meet() {
    needs_root!();
    let ground = Ground::prepare("same");
    let _both = [
        in_pid_namespace(&ground, 500),
        in_pid_namespace(&ground, 500),
    ];
    eventually("both commands run", || {
        let busy = |path: &std::path::PathBuf| {
            fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|it| !it.is_empty())
        };
        ground.folders().iter().filter(|path| busy(path)).count() == 2
    });
}

#[test]
fn the_cgroup_of_a_pillion_whose_process_id_is_unknown_here_is_left_alone() {
    needs_root!();
    let ground = Ground::prepare("unknown");
    let most = fs::read_to_string("/proc/sys/kernel/pid_max").expect("a number");
    let most: u32 = most.trim().parse().expect("a number");
    let unknown = (300..most).find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    let _inner = in_pid_namespace(&ground, unknown.expect("a number") - 1);
    let mut processes = Vec::new();
    eventually("its command runs", || {
        let busy = ground.folders().into_iter().next();
        let procs = busy.and_then(|it| fs::read_to_string(it.join("cgroup.procs")).ok());
        processes = procs
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        processes.len() == 1
    });
    let command = Pid::from_raw(processes[0].parse().expect("a PID"));
    let before = place(command);
    let mut next = run(&["true"]);
    ground.place(&mut next);
    assert!(next.status().expect("it runs").success());
    assert_eq!(place(command), before);
}

#[test]
fn below_a_threaded_cgroup_pillion_says_that_it_cannot_run_anything() {
    needs_root!();
    let ground = Ground::prepare("threaded");
    let threads = ground.path().join("threads");
    fs::create_dir(&threads).expect("a cgroup");
    fs::write(threads.join("cgroup.type"), "threaded").expect("threads may be apart");
    let mut command = run(&["true"]);
    ground.place(command.stderr(Stdio::piped()));
    let output = command.output().expect("it runs");
    fs::remove_dir(&threads).expect("it is empty");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("is threaded"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(ground.folders().is_empty());
}
