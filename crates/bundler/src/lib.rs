//! Redundant Data Bundling on a stock Linux kernel.
//!
//! [`Programs::load`] brings the eBPF programs into the kernel, [`Attachment`]
//! puts them to work; nothing of it outlives the process. What they did is read
//! from [`Totals`], [`list_flows`] and, time and again, [`FlowReader`].

mod attachment;
mod cgroup;
mod change;
mod check;
mod clsact;
mod companions;
mod congestion;
mod contract;
mod counters;
mod decision;
mod device;
mod device_attachment;
mod device_attachments;
mod device_list;
mod error;
mod escaped;
mod flows;
mod followed_namespace;
mod hook;
mod limits;
mod link;
mod netlink;
mod netns;
mod netns_name;
mod options;
mod outcome;
mod places;
mod policy;
mod programs;
mod readings;
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
mod watch;

pub use attachment::Attachment;
pub use cgroup::{Cgroup, cgroup_id, cgroup2_mount};
pub use change::Change;
pub use check::{Finding, Standing, check};
pub use clsact::remove_filters;
pub use companions::{Companion, Companions};
pub use congestion::{CongestionControl, offered as offered_congestion_controls};
pub use counters::Counters;
pub use decision::Decision;
pub use device::{Device, LinkHeader};
pub use error::Error;
pub use flows::{Flow, FlowReader, WantedBy, list_flows};
pub use hook::Hook;
pub use netns::Namespace;
pub use netns_name::NamespaceName;
pub use options::{Level, LossRule, Options, Reaction, ThinRtt};
pub use outcome::Outcome;
pub use policy::Policy;
pub use programs::Programs;
pub use readings::Readings;
pub use rule::{Direction, Mode, Rule};
pub use scope::Scope;
pub use selection::Selection;
pub use statistic::{Kind, Statistic};
pub use target::Target;
pub use thin_test::ThinTest;
pub use totals::Totals;
