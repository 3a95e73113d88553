//! Redundant Data Bundling on a stock Linux kernel.
//!
//! [`Programs::load`] brings the eBPF programs into the kernel, [`Attachment`]
//! puts them to work; nothing of it outlives the process. What they did is read
//! from [`Totals`], [`list_flows`] and, time and again, [`FlowReader`].

mod attachment;
mod cgroup;
mod cgroup_links;
mod cgroup_room;
mod change;
mod check;
mod closed;
mod clsact;
mod companions;
mod congestion;
mod constants;
mod contract;
mod counters;
mod decision;
mod device;
mod device_attachment;
mod device_attachments;
mod device_list;
mod error;
mod flows;
mod followed_namespace;
mod followed_rules;
mod found_maps;
mod governed;
mod governor;
mod helper_port;
mod hook;
pub mod host;
mod limits;
mod link;
mod loader;
mod namespaces;
mod netlink;
mod netns;
mod netns_name;
mod observation;
mod observing;
mod options;
mod outcome;
mod places;
mod policy;
mod programs;
mod readings;
mod remains;
mod renewal;
mod request_shares;
mod requests;
mod rule;
mod scope;
mod selection;
mod share;
mod socket_option;
mod statistic;
mod target;
mod thin_test;
mod totals;
mod troubles;
mod turn;
mod walk;
mod watch;

pub use crate::host::{Container, ContainerChoice, ContainerLabel, ContainerName, Containers};
pub use attachment::Attachment;
pub use cgroup::{
    Cgroup, CgroupName, CgroupNameError, cgroup1_mount, cgroup2_mount, is_whole, open_cgroup2,
};
pub use change::Change;
pub use check::{Finding, Standing, check};
pub use closed::list_closed;
pub use companions::{Companion, Companions};
pub use congestion::{
    CongestionControl, CongestionControlError, offered as offered_congestion_controls,
};
pub use counters::Counters;
pub use decision::Decision;
pub use device::{Device, LinkHeader};
pub use error::Error;
pub use flows::{Flow, FlowLister, FlowReader, WantedBy, list_flows};
pub use followed_rules::FollowedRules;
pub use governed::{Alarm, Governed, Verdict};
pub use helper_port::HELPER_PORTS;
pub use hook::Hook;
pub use limits::{parse_bytes, parse_packets};
pub use namespaces::Namespaces;
pub use netns::Namespace;
pub use netns_name::{NamespaceName, NoNamespaceName};
pub use observation::{LatencyBuckets, Losses, Observation, Retransmitted};
pub use observing::{Arm, DrawBy, Observing};
pub use options::{EXPERIMENTAL, Level, LossRule, Options, Reaction, ThinRtt};
pub use outcome::Outcome;
pub use policy::{Cgroups, Policy};
pub use programs::Programs;
pub use readings::Readings;
pub use remains::Remains;
pub use requests::Requests;
pub use rule::{Direction, Mode, Rule};
pub use scope::Scope;
pub use selection::Selection;
pub use statistic::{Kind, Statistic};
pub use target::{Target, TargetError};
pub use thin_test::{ThinTest, ThinTestError};
pub use totals::Totals;
