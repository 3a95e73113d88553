//! Redundant Data Bundling on a stock Linux kernel.
//!
//! [`Programs::load`] loads the eBPF programs into the kernel, [`Attachment`] attaches them;
//! everything ends with the process. Results are in [`Totals`], [`list_flows`] and, for repeated
//! reads, [`FlowReader`].

mod attach_targets;
mod attachment;
mod cgroup;
mod cgroup_hierarchy;
mod cgroup_links;
mod change;
mod check;
mod closed;
mod clsact;
mod congestion;
mod counters;
mod device;
mod device_attachments;
mod device_segments;
mod error;
mod flows;
mod followed_namespace;
mod followed_rules;
mod governor;
mod holdback;
pub mod host;
mod link;
mod loader;
mod memory_limit;
mod netlink;
mod netns;
mod netns_name;
mod observation;
mod options;
mod outcome;
mod policy;
mod programs;
mod quota;
mod redundancy_caps;
mod requests;
mod retry_state;
mod rule;
mod socket_iter;
mod tcp_options;
mod thin_test;
pub mod units;

/// The Rust side of `bpf/bundler/*.bpf.c`, generated from the compiled programs' BTF: the structs and
/// constants shared with C are defined once, in C.
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod contract {
    mod pillion {
        include!(concat!(env!("OUT_DIR"), "/pillion.skel.rs"));
    }

    mod flows {
        include!(concat!(env!("OUT_DIR"), "/flows.skel.rs"));
    }

    pub use flows::{FlowsSkelBuilder, OpenFlowsSkel};
    pub use pillion::{
        OpenPillionSkel, PillionMaps, PillionProgs, PillionSkel, PillionSkelBuilder, types,
    };
}

pub use crate::host::{Container, ContainerLabel, ContainerName, ContainerSelector, Containers};
pub use attach_targets::AttachTargets;
pub use attachment::{Attachment, Reviewed};
pub use cgroup::{Cgroup, open_cgroup2};
pub use cgroup_hierarchy::{
    CgroupName, CgroupNameError, cgroup1_mount, cgroup2_mount, is_full_hierarchy,
};
pub use change::Change;
pub use check::{CheckResult, Severity, check};
pub use closed::list_closed;
pub use congestion::{
    CongestionControl, CongestionControlError, available as available_congestion_controls,
};
pub use counters::{
    ActiveConnections, Counters, RTT_QUANTILES, Statistic, StatisticKind, TfrcDecision, Totals,
    TotalsReader,
};
pub use device::{Device, LinkHeader};
pub use error::Error;
pub use flows::{Flow, FlowLister, FlowReader, RequestedBy, list_flows};
pub use followed_rules::FollowedRules;
pub use governor::{Alarm, GovernorDecision, Verdict};
pub use holdback::{Arm, Holdback};
pub use link::Hook;
pub use memory_limit::available_memory;
pub use netns::{Namespace, Scope};
pub use netns_name::{EmptyNamespaceName, NamespaceName, Namespaces};
pub use observation::{
    AssignBy, LatencyBuckets, Losses, Observation, Observing, RetransmitCounts, RtoMinEffect,
};
pub use options::{
    CopiesWhen, EXPERIMENTAL, Level, LossRule, Options, Overhead, Reaction, Target, TargetError,
    ThinRtt, parse_bytes, parse_packets,
};
pub use outcome::Outcome;
pub use policy::{Cgroups, Policy};
pub use programs::{KillCleanup, Programs};
pub use redundancy_caps::RedundancyCaps;
pub use requests::Requests;
pub use rule::{Direction, HELPER_PORTS, Mode, Rule};
pub use tcp_options::{TcpOption, TcpOptions};
pub use thin_test::{ThinTest, ThinTestError};
