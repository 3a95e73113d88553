//! Nothing remains after pillion exits, however it ends.

use std::fs;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_tests::HostPair;

use crate::attach::send;
use crate::common::*;
use crate::lifecycle::state;

/// Kills pillion and waits until all its kernel objects are gone.
fn kill_and_check_removal(mut child: Child) {
    let mut objects = bpf_objects(child.id());
    // Objects used only during the start are released first.
    eventually("the set of objects is stable", || {
        let before = std::mem::replace(&mut objects, bpf_objects(child.id()));
        before == objects && objects.is_subset(&all_bpf_objects())
    });
    assert!(
        objects.iter().any(|object| object.starts_with("prog_id")),
        "{objects:?}"
    );
    send_signal(&child, Signal::SIGKILL);
    child.wait().expect("the process exits");
    eventually("programs, maps and links are gone", || {
        objects.is_disjoint(&all_bpf_objects())
    });
}

#[test]
fn killed_run_leaves_nothing_and_command_survives() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut run = pillion_in(&namespace, &["run", "--dev", "lo", "--", "sleep", "300"]);
    let child = run.stdin(Stdio::null()).spawn().expect("pillion runs");
    await_attached(child.id());
    let cgroup = cgroup_of(child.id()).expect("a cgroup");
    eventually("the command is in its cgroup", || {
        fs::read_to_string(cgroup.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty())
    });
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    let command: i32 = pids.trim().parse().expect("one process");

    kill_and_check_removal(child);
    eventually("the cgroup is removed", || !cgroup.exists());
    kill(Pid::from_raw(command), Signal::SIGKILL).expect("the command survives");
}

#[test]
fn killed_attach_leaves_no_program_or_link() {
    needs_root!();
    let namespace = namespace_with_loopback();
    for (hook, stops_helper) in [("tcx", false), ("tcx", true), ("clsact", true)] {
        let mut attach = pillion_in(&namespace, &["attach", "--dev", "lo", "--hook", hook]);
        let child = attach.stdin(Stdio::null()).spawn().expect("pillion runs");
        await_attached(child.id());
        assert_eq!(cgroup_of(child.id()), None);
        let helper = cleanup_helper(child.id());
        eventually("the helper waits", || state(helper) == 'S');
        if stops_helper {
            kill(helper, Signal::SIGSTOP).unwrap();
        }
        kill_and_check_removal(child);
    }
}

#[test]
fn stopped_run_and_attach_leave_nothing() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut run = pillion_in(&namespace, &["run", "--dev", "lo", "--", "sleep", "1"]);
    let mut run = run.spawn().expect("pillion runs");
    let mut attach = pillion_in(&namespace, &["attach", "--dev", "lo", "--all"]);
    let mut attach = attach.spawn().expect("pillion runs");
    await_attached(run.id());
    await_attached(attach.id());
    let objects: Vec<_> = [&run, &attach]
        .iter()
        .flat_map(|child| bpf_objects(child.id()))
        .collect();
    let cgroup = cgroup_of(run.id()).expect("a cgroup");

    assert!(run.wait().expect("the process exits").success());
    assert!(!cgroup.exists(), "run removes its cgroup before it ends");
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().expect("the process exits").success());
    eventually("programs, maps and links are gone", || {
        let all = all_bpf_objects();
        objects.iter().all(|object| !all.contains(object))
    });
}

#[test]
fn stale_cgroup_is_removed_by_next_run() {
    needs_root!();
    // No process holds its lock.
    let stale = own_cgroup().join("pillion-00000000000000aa");
    fs::create_dir(&stale).expect("a cgroup");
    let namespace = namespace_with_loopback();
    let status = pillion_in(&namespace, &["run", "--dev", "lo", "--", "true"]).status();
    assert!(status.expect("pillion runs").success());
    assert!(!stale.exists());
}

/// Kills pillion while it bundles streams; TCP receives no DSACK of bundles in flight.
fn kill_with_bundles_in_flight(pair: &HostPair, mut pillion: Child, receiver: Child) {
    let received_bundles = || netstat(&pair.receiver.namespace, "TCPDSACKOldSent");
    eventually("bundles arrive", || received_bundles() > 20);
    let before = received_bundles();
    send_signal(&pillion, Signal::SIGKILL);
    pillion.wait().expect("the process exits");
    let received = receiver.wait_with_output().expect("the process exits");
    assert!(received.status.success(), "every byte is verified");
    let in_flight = received_bundles() - before;
    assert!((1..30).contains(&in_flight), "{before}, {in_flight}");
    assert_eq!(netstat(&pair.sender.namespace, "TCPDSACKRecv"), 0);
}

#[test]
fn killed_attach_hides_dsacks_of_bundles_in_flight() {
    needs_root!();
    for hook in ["tcx", "clsact"] {
        let pair = clean_pair();
        let mut attach = pillion_in(&pair.sender.namespace, &["attach", "--all", "--hook", hook]);
        let attach = attach.stdin(Stdio::null()).spawn().expect("pillion runs");
        await_attached(attach.id());
        let receiver = receive(&pair, 7001, 2);
        let mut sender = send(&pair, 7001, "4");
        kill_with_bundles_in_flight(&pair, attach, receiver);
        assert!(sender.wait().expect("the process exits").success());
    }
}

#[test]
fn killed_run_hides_dsacks_of_bundles_in_flight() {
    needs_root!();
    let pair = clean_pair();
    let receiver = receive(&pair, 7001, 2);
    let command = "traffic send --to 10.77.0.2:7001 --streams 2 --itt 10ms --duration 4s";
    let mut run = pillion_in(&pair.sender.namespace, &["run", "--", PILLION_LAB]);
    let run = run.args(command.split(' ')).stdout(Stdio::null());
    let run = run.spawn().expect("pillion runs");
    kill_with_bundles_in_flight(&pair, run, receiver);
}
