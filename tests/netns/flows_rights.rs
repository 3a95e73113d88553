//! `pillion flows`, and what it may not see.

use std::os::unix::process::CommandExt;
use std::process::Output;

use crate::common::*;

/// By one who has these capabilities alone, by their numbers.
fn flows_with(capabilities: &'static [u64]) -> Output {
    let namespace = namespace_with_loopback();
    let mut flows = pillion_in(&namespace, &["flows"]);
    let drop_others = move || {
        for capability in (0..=40u64).filter(|it| !capabilities.contains(it)) {
            // SAFETY: a plain system call.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            assert_eq!(dropped, 0);
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { flows.pre_exec(drop_others) };
    flows.output().unwrap()
}

const CAP_NET_ADMIN: u64 = 12;
const CAP_SYS_ADMIN: u64 = 21;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

#[test]
fn flows_that_may_not_be_seen_are_not_said_to_be_none() {
    needs_root!();
    let output = flows_with(&[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(stdout(&output), "");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn flows_are_seen_with_the_capabilities_documented_for_that() {
    needs_root!();
    let output = flows_with(&[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN]);
    assert!(output.status.success(), "{}", stderr(&output));
}
