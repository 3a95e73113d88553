use std::fs;

use crate::contract::types;
use crate::{Observing, Policy, Scope};

/// What the programs are told before the kernel verifies them, and cannot be told otherwise later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constants {
    /// True if connections of a cgroup are covered in every network namespace.
    pub(crate) any_namespace: bool,
    max_connections: u32,
    receivers_are_safe: bool,
    governing: bool,
    observing: Option<Observing>,
}

impl Constants {
    /// As this policy and the calling thread's network namespace have them.
    pub(crate) fn of(policy: &Policy) -> Self {
        Self {
            any_namespace: policy.scope == Scope::Anywhere,
            max_connections: policy.max_connections,
            receivers_are_safe: clamps_the_scaling_ratio(),
            governing: policy.governing,
            observing: policy.observing,
        }
    }

    /// Writes them where the programs have them.
    pub(crate) fn store(&self, data: &mut types::rodata) {
        data.any_namespace = self.any_namespace;
        data.max_connections = self.max_connections;
        data.receivers_are_safe = self.receivers_are_safe;
        data.governing = self.governing;
        if let Some(observing) = &self.observing {
            data.observing = true;
            data.draw_key = observing.key;
            data.draw_bundled = observing.bundled_of_2_32();
            data.draw_by = observing.draw_by.raw();
            data.grace_us = observing.grace_us;
            data.stall_us = observing.stall_us;
        }
    }
}

/// Does this kernel keep a receiver's window sane whatever a program adds to its packets? The
/// lab kernel does, and says so; docs/bundling.md has what happens elsewhere.
fn clamps_the_scaling_ratio() -> bool {
    fs::read("/proc/sys/net/ipv4/tcp_clamp_scaling_ratio").is_ok_and(|value| value == b"1\n")
}
