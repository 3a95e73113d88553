use std::os::fd::AsFd;

use crate::settings::experiment::Streams;
use pillion_bpf::{
    Attachment, FlowReader, Hook, Mode, NamespaceName, Namespaces, Policy, Programs, Rule,
    Selection, Totals, open_cgroup2,
};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::testbed::{DEVICE, Node};

/// pillion at work on the streams of one group.
#[derive(Debug)]
pub(super) struct Bundling {
    group: String,
    /// The place of the group's host in [`Plan::hosts`](crate::settings::experiment::Plan::hosts).
    pub(super) host: usize,
    attachment: Attachment,
}

/// What pillion did for one group; what a run of an older version does not tell is 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBundled {
    /// The group's name.
    pub group: String,
    /// All that was done for its connections.
    #[serde(flatten)]
    pub totals: Totals,
}

impl Bundling {
    /// Begins to bundle, if the group is to be bundled: on its host's device, the connections to
    /// its port.
    pub(super) fn start(streams: &Streams, host: &Node, port: u16) -> Result<Option<Self>, Error> {
        let Some(how) = streams.bundling else {
            return Ok(None);
        };
        let namespace = host.namespace.path();
        let name = NamespaceName::from(namespace.as_os_str());
        let namespaces = Namespaces {
            named: vec![name],
            ..Namespaces::default()
        };
        let selection = Selection::new(&[DEVICE], &namespaces, Hook::of_this_kernel())?;
        let policy = Policy {
            rules: vec![Rule {
                remote_ports: vec![port..=port],
                companions: how.companions,
                ..Rule::all(how.options)
            }],
            otherwise: Mode::LeaveAlone,
            governing: true,
            ..Policy::default()
        };
        let programs = Programs::load(&policy.at(&selection))?;
        let cgroup = open_cgroup2()?;
        let devices = selection.devices()?;
        Ok(Some(Self {
            group: streams.traffic.name.clone(),
            host: streams.host,
            attachment: Attachment::new(programs, cgroup.as_fd(), &devices)?,
        }))
    }

    /// A reader of the group's connections that pillion bundles.
    pub(super) fn flows(&self) -> Result<FlowReader, Error> {
        Ok(self.attachment.flows()?)
    }

    /// Ends the bundling, and returns what was done.
    pub(super) fn finish(mut self) -> Result<GroupBundled, Error> {
        self.attachment.detach();
        Ok(GroupBundled {
            totals: self.attachment.totals()?,
            group: self.group,
        })
    }
}
