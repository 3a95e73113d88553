//! `pillion flows` and its privileges.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Output;

use caps::Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN};
use caps::{CapSet, Capability};

use crate::common::*;

/// Runs `flows` with only these capabilities.
fn flows_with(kept: &[Capability]) -> Output {
    let namespace = namespace_with_loopback();
    let mut flows = pillion_in(&namespace, &["flows"]);
    let mut others = caps::all();
    others.retain(|it| !kept.contains(it));
    let drop_others = move || {
        let mut others = others.iter();
        others
            .try_for_each(|it| caps::drop(None, CapSet::Bounding, *it))
            .map_err(io::Error::other)
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { flows.pre_exec(drop_others) };
    flows.output().unwrap()
}

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
