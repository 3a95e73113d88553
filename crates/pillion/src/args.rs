//! Options that several commands share: how to bundle, and which connections.

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pillion_bpf::{
    CgroupName, ContainerChoice, ContainerLabel, ContainerName, EXPERIMENTAL, Error, Hook,
    NamespaceName, Namespaces, Options, Policy, Programs, Rule, Selection,
};
use pillion_cli::settings::policy::{Peer, Ports};
use pillion_cli::settings::{BadInput, Bundling, idle_option, refuse_unsafe};

use crate::process::{CleanupHelper, refuse_if_setuid, start_cleanup};

/// The heading of [`Bundling`] in the help; clap would put it over what comes behind it as well.
const HEADING: &str = "Bundling";

/// The place of options that stand here so that their heading comes first, behind the others of it.
const LAST: usize = 1000;

#[derive(clap::Args)]
pub struct BundlingArgs {
    /// A network device to bundle on, whatever device has this name at the time; repeat for
    /// more [default: all that are up, but lo, and those that come up later]
    #[arg(long = "dev", value_name = "IF", help_heading = HEADING, display_order = LAST)]
    pub devices: Vec<OsString>,

    /// Where in a device's path to stand
    #[arg(long, value_name = "HOOK", default_value = AUTO, value_parser = hook_parser(),
          help_heading = HEADING, display_order = LAST)]
    hook: HookChoice,

    /// Connections that something is kept for at a time, of one user half as many; 4.5 KiB of
    /// the kernel's memory each, charged to pillion's own cgroup. The others stay plain
    #[arg(long, value_name = "N", default_value_t = Policy::MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(2..), help_heading = HEADING,
          display_order = LAST)]
    pub max_connections: u32,

    #[command(flatten)]
    pub how: Bundling,

    /// Allow what takes a stream out of congestion control
    #[arg(long = "unsafe", help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub allow_unsafe: bool,
}

/// None: the better one that the kernel has.
type HookChoice = Option<Hook>;

const AUTO: &str = "auto";

fn hook_parser() -> impl TypedValueParser<Value = HookChoice> {
    let auto = PossibleValue::new(AUTO).help("The better one that the kernel has");
    let hooks = Hook::value_variants().iter();
    let hooks = hooks.filter_map(ValueEnum::to_possible_value);
    let words = PossibleValuesParser::new(std::iter::once(auto).chain(hooks));
    words.map(|word| Hook::from_str(&word, false).ok())
}

impl BundlingArgs {
    /// The options, unless they are unsafe and that is not allowed.
    pub fn options(&self) -> Result<Options> {
        let options = self.how.options;
        refuse_unsafe(&options, self.allow_unsafe)?;
        if let Some(option) = idle_option(&options) {
            let why =
                format!("--{option} is for --level adaptive: give that, too, or leave it out");
            return Err(BadInput(why).into());
        }
        Ok(options)
    }

    /// Refuses what takes more than a user may do by himself, where the privilege is lent.
    pub fn refuse_lent(&self) -> Result<(), BadInput> {
        let companions = &self.how.companions;
        let more = [
            ("--unsafe", self.allow_unsafe),
            ("--congestion", companions.congestion.is_some()),
            ("--rto-min", companions.rto_min.is_some()),
            ("--delack-max", companions.delack_max.is_some()),
            (
                "--max-connections",
                self.max_connections != Policy::MAX_CONNECTIONS,
            ),
        ];
        let asked = more.into_iter().find(|(_, asked)| *asked);
        asked.map_or(Ok(()), |(option, _)| refuse_if_setuid(option))
    }

    /// The options, as the command line has them: those that are off are left out.
    pub fn words(&self) -> Result<String> {
        let keys = toml::to_string(&self.how)?;
        let words = keys
            .lines()
            .filter_map(|line| match line.split_once(" = ")? {
                (_, "false") => None,
                (name, "true") => Some(format!("--{name}")),
                (name, value) => Some(format!("--{name} {}", value.trim_matches('"'))),
            });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// The devices of these network namespaces, of which there is one at least.
    pub fn selection(&self, namespaces: &Namespaces) -> Result<Selection, Error> {
        let selection = Selection::new(&self.devices, namespaces, self.hook())?;
        selection.devices()?;
        Ok(selection)
    }

    /// Where the programs are to stand.
    pub fn hook(&self) -> Hook {
        self.hook.unwrap_or_else(Hook::of_this_kernel)
    }
}

// Connections that are chosen on the command line, by what they are and where they are.

/// What they are.
#[derive(clap::Args)]
pub struct ChoiceArgs {
    /// Connections with this local or remote port, or one of a range, as in 8000-8100; repeat for
    /// more
    #[arg(long = "port", value_name = "PORTS")]
    ports: Vec<Ports>,

    /// Connections with a peer at this address or in this network, as in 192.0.2.0/24, or a host of
    /// this name; repeat for more
    #[arg(long = "peer", value_name = "PEER")]
    pub peers: Vec<Peer>,

    /// Connections of sockets of this cgroup or one below it, as in `/proc/PID/cgroup`; `*`, `?` and
    /// `[...]` are as in shells: '/system.slice/game-*.service'. It need not be there yet; repeat for
    /// more
    #[arg(long = "cgroup", value_name = "CGROUP")]
    pub cgroups: Vec<CgroupName>,

    /// Connections of this container, which may come later and is followed into its network
    /// namespace: its name, or of a pod's POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER, with wildcards
    /// if so wanted: 'web-*'; repeat for more
    #[arg(long = "container", value_name = "NAME", conflicts_with = "cgroups")]
    containers: Vec<ContainerName>,

    /// Connections of containers with this label or annotation, as far as their runtime's files have
    /// it; the value may have wildcards; repeat for more
    #[arg(
        long = "container-label",
        value_name = "KEY=VALUE",
        conflicts_with = "cgroups"
    )]
    labels: Vec<ContainerLabel>,
}

/// Where they are.
#[derive(clap::Args)]
pub struct NamespaceArgs {
    /// Connections of this network namespace and no longer of pillion's own: a name under
    /// /run/netns, the PID of a process that is in it, or a file, the first and the last with wildcards
    /// if so wanted: 'cni-*'; repeat for more (its own: /proc/self/ns/net)
    #[arg(long = "netns", value_name = "NAMESPACE")]
    pub named: Vec<NamespaceName>,
}

impl ChoiceArgs {
    /// True if nothing is asked of them.
    pub fn is_empty(&self) -> bool {
        let of_addresses = self.ports.is_empty() && self.peers.is_empty();
        of_addresses && self.cgroups.is_empty() && self.containers().is_empty()
    }

    /// The containers whose they are.
    pub fn containers(&self) -> ContainerChoice {
        ContainerChoice {
            names: self.containers.clone(),
            labels: self.labels.clone(),
        }
    }

    /// The rule for them.
    pub fn rule(&self, how: &Bundling, options: Options) -> Rule {
        Rule {
            ports: self
                .ports
                .iter()
                .map(|Ports(range)| range.clone())
                .collect(),
            peers: self.peers.iter().flat_map(|it| it.nets.clone()).collect(),
            cgroups: self.cgroups.clone(),
            containers: self.containers(),
            companions: how.companions,
            ..Rule::all(options)
        }
    }

    /// Describes them; `None` if nothing is asked of them.
    pub fn words(&self) -> Option<String> {
        let containers = self.containers();
        let with = [
            list("port", &self.ports),
            list("peer", &self.peers),
            list("cgroup", &self.cgroups),
        ];
        let with: Vec<_> = with.into_iter().flatten().collect();
        let with = (!with.is_empty()).then(|| format!("with {}", with.join(" and ")));
        let of = (!containers.is_empty()).then(|| format!("of containers {containers}"));
        let parts: Vec<_> = with.into_iter().chain(of).collect();
        (!parts.is_empty()).then(|| format!("connections {}", parts.join(" ")))
    }

    /// The same, described alike in whatever order they were named.
    pub fn in_order(&self) -> Self {
        Self {
            ports: in_order(&self.ports),
            peers: in_order(&self.peers),
            cgroups: in_order(&self.cgroups),
            containers: in_order(&self.containers),
            labels: in_order(&self.labels),
        }
    }
}

/// Values of one kind, in words.
fn list(kind: &str, values: &[impl ToString]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
}

/// What is named, in the order of its text, and of numbers in that of their values.
pub fn in_order<T: Clone + ToString>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort_by_cached_key(|it| {
        let text = it.to_string();
        (text.len(), text)
    });
    all
}

/// Starts a helper process that detaches all programs in these namespaces if this process is killed.
pub fn start_cleanup_helper(programs: &Programs, namespaces: &Namespaces) -> Result<CleanupHelper> {
    let remains = programs.remains();
    start_cleanup(|| remains.clear(namespaces, None)).context("start the cleanup helper")
}
