//! Redundant Data Bundling on a stock Linux kernel.
//!
//! [`Programs::load`] brings the eBPF programs into the kernel, [`Attachment`]
//! puts them to work; nothing of it outlives the process. What they did is read
//! from [`Totals`], [`list_flows`] and, time and again, [`FlowReader`].

mod attachment;
mod cgroup;
mod cgroup_hierarchy;
mod check;
mod closed;
mod clsact;
mod companions;
mod congestion;
mod counters;
mod device;
mod device_attachments;
mod error;
mod flows;
mod followed_namespace;
mod followed_rules;
mod governor;
pub mod host;
mod link;
mod loader;
mod netlink;
mod netns;
mod netns_name;
mod observation;
mod options;
mod outcome;
mod policy;
mod programs;
mod quota;
mod requests;
mod retry_state;
mod rule;
mod selection;
mod socket_iter;
mod thin_test;

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

pub use crate::host::{Container, ContainerChoice, ContainerLabel, ContainerName, Containers};
pub use attachment::Attachment;
pub use cgroup::{Cgroup, open_cgroup2};
pub use cgroup_hierarchy::{CgroupName, CgroupNameError, cgroup1_mount, cgroup2_mount, is_whole};
pub use check::{Finding, Standing, check};
pub use closed::list_closed;
pub use companions::{Companion, Companions};
pub use congestion::{
    CongestionControl, CongestionControlError, offered as offered_congestion_controls,
};
pub use counters::{Counters, Decision, Kind, Readings, Statistic, Totals};
pub use device::{Device, LinkHeader};
pub use error::Error;
pub use flows::{Flow, FlowLister, FlowReader, WantedBy, list_flows};
pub use followed_rules::FollowedRules;
pub use governor::{Alarm, Governed, Verdict};
pub use link::Hook;
pub use netns::{Namespace, Namespaces, Scope};
pub use netns_name::{NamespaceName, NoNamespaceName};
pub use observation::{Arm, DrawBy, LatencyBuckets, Losses, Observation, Observing, Retransmitted};
pub use options::{
    EXPERIMENTAL, Level, LossRule, Options, Reaction, Target, TargetError, ThinRtt, parse_bytes,
    parse_packets,
};
pub use outcome::Outcome;
pub use policy::{Cgroups, Policy};
pub use programs::{Programs, Remains};
pub use requests::Requests;
pub use retry_state::Change;
pub use rule::{Direction, HELPER_PORTS, Mode, Rule};
pub use selection::Selection;
pub use thin_test::{ThinTest, ThinTestError};
