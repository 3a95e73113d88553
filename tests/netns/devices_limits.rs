//! Limits of open files (RLIMIT_NOFILE), and devices beyond them.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::*;
use crate::devices::Attach;
use crate::devices_start::{batch, make_pairs};
use crate::namespaces::Resident;

/// Sets the soft and the hard limit of open files for a command.
fn limited(mut command: Command, soft: u64, hard: u64) -> Command {
    let limit = move || setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(Into::into);
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(limit) };
    command
}

#[test]
fn what_may_be_asked_for_is_and_the_command_has_what_was_given() {
    needs_root!();
    let namespace = namespace_with_loopback();
    make_pairs(&namespace, 40);
    let script = "ulimit -Sn; ulimit -Hn";
    let run = pillion_in(&namespace, &["run", "--", "sh", "-c", script]);
    let output = limited(run, 64, 4096).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "64\n4096\n");
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn devices_for_which_there_is_no_room_are_told_of_once_and_taken_when_there_is() {
    needs_root!();
    let namespace = namespace_with_loopback();
    make_pairs(&namespace, 40);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nports = 7777\n").unwrap();
    let options = ["attach", "--config", rules.to_str().unwrap()];
    let attach = limited(pillion_in(&namespace, &options), 128, 128);
    let mut attach = Attach::of(attach, folder);
    assert!(attach.said().contains("bundling by 1 rule"));
    let said = attach.said();
    assert!(said.contains("128 files may be open at once"), "{said}");
    let links = attach.links();
    assert!((20..160).contains(&links), "{links}");
    // A reload needs descriptors as well.
    let pid = Pid::from_raw(attach.process.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    let said = attach.said();
    assert!(said.contains(": 1 rule; 0 connections covered"), "{said}");
    // Removed devices make room for others.
    batch(&namespace, "link delete a0\nlink delete a1\n");
    let gone: Vec<_> = (0..4).map(|_| attach.said()).collect();
    assert!(
        gone.iter().all(|line| line.ends_with(" has gone")),
        "{gone:?}"
    );
    eventually("other devices are attached", || attach.links() == links);
    batch(
        &namespace,
        "link add n0 type veth peer name n1\nlink set n0 up\n",
    );
    // Nothing is logged: there is still no room, and that was reported before.
    kill(pid, Signal::SIGHUP).unwrap();
    let said = attach.said();
    assert!(said.contains(": 1 rule; 0 connections covered"), "{said}");
    attach.interrupt();
}

#[test]
fn devices_of_one_namespace_take_no_room_from_another() {
    needs_root!();
    let (greedy, modest) = (namespace_with_loopback(), namespace_with_loopback());
    make_pairs(&modest, 1);
    let residents = [&greedy, &modest].map(Resident::of);
    let elsewhere = namespace_with_loopback();
    let [greedy_pid, modest_pid] = [&residents[0], &residents[1]].map(Resident::pid);
    let options = [
        "attach",
        "--all",
        "--netns",
        &greedy_pid,
        "--netns",
        &modest_pid,
    ];
    let attach = limited(pillion_in(&elsewhere, &options), 128, 128);
    let mut attach = Attach::of(attach, tempfile::tempdir().unwrap());
    assert!(attach.said().contains("bundling all connections on "));
    make_pairs(&greedy, 60);
    // Lines about new devices and about the limit come in any order.
    loop {
        let said = attach.said();
        if said.contains("no more than ") {
            assert!(said.contains(&format!(" in {greedy_pid} ")), "{said}");
            break;
        }
        assert!(said.contains("has come: bundling there, too"), "{said}");
    }
    batch(
        &modest,
        "link add n0 type veth peer name n1\nlink set n0 up\n",
    );
    let come = format!("pillion: n0 in {modest_pid} has come: bundling there, too");
    loop {
        let said = attach.said();
        if said == come {
            break;
        }
        assert!(said.contains(&greedy_pid), "{said}");
    }
    attach.interrupt();
}
