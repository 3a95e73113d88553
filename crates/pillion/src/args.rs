//! Options that several commands share: bundling, and conditions of connections.

use std::ffi::OsString;

use anyhow::{Context, Result};
use caps::CapsHashSet;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pillion_bpf::{
    AttachTargets, CgroupName, ContainerLabel, ContainerName, ContainerSelector, EXPERIMENTAL,
    Error, Holdback, Hook, KillCleanup, NamespaceName, Namespaces, Options, Policy, Programs,
    RedundancyCaps, Rule, available_memory,
};
use pillion_cli::settings::policy::{Peer, Ports};
use pillion_cli::settings::{BadInput, Bundling, UnusedOption, refuse_unsafe, unused_option};

use crate::process::{
    CleanupHelper, FOR_DEVICES, FOR_FILES, FOR_NAMESPACES, refuse_if_setuid, spawn_cleanup_helper,
};

/// Help heading of [`Bundling`]. Set for each option here, because clap would also apply it to later
/// ones.
const HEADING: &str = "Bundling";

/// Display order after the other options of the same heading.
const LAST: usize = 1000;

#[derive(clap::Args)]
pub struct BundlingArgs {
    /// Network device to attach to, by name, now and later; repeatable [default: all devices that are
    /// or come up, except lo]
    #[arg(long = "dev", value_name = "IF", help_heading = HEADING, display_order = LAST)]
    pub devices: Vec<OsString>,

    /// Attachment point in the device's path
    #[arg(long, value_name = "HOOK", default_value = AUTO, value_parser = hook_parser(),
          help_heading = HEADING, display_order = LAST)]
    hook: HookChoice,

    /// Maximum number of connections with state, half of it for one user; each takes 4.5 KiB of kernel
    /// memory, charged to pillion's cgroup. Further connections stay plain
    #[arg(long, value_name = "N", default_value_t = Policy::MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(2..), help_heading = HEADING,
          display_order = LAST)]
    max_connections: u32,

    #[command(flatten, next_help_heading = HEADING)]
    pub caps: RedundancyCaps,

    #[command(flatten)]
    pub how: Bundling,

    /// Allow options that disable congestion control
    #[arg(long = "unsafe", help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub allow_unsafe: bool,
}

#[derive(clap::Args)]
pub struct HoldbackArgs {
    /// Share of the selected connections that stays plain, 1% to 50%; bundling ends if bundled ones are
    /// reliably worse (docs/guides/rollout.md)
    #[arg(long, value_name = "PERCENT", default_value_t, help_heading = HEADING,
          display_order = LAST)]
    pub holdback: Holdback,
}

/// `None` is `auto`: tcx if the kernel supports it, otherwise clsact.
type HookChoice = Option<Hook>;

const AUTO: &str = "auto";

fn hook_parser() -> impl TypedValueParser<Value = HookChoice> {
    let auto = PossibleValue::new(AUTO).help("tcx if the kernel supports it, otherwise clsact");
    let hooks = Hook::value_variants().iter();
    let hooks = hooks.filter_map(ValueEnum::to_possible_value);
    let names = PossibleValuesParser::new(std::iter::once(auto).chain(hooks));
    names.map(|name| Hook::from_str(&name, false).ok())
}

impl BundlingArgs {
    /// Returns the options.
    ///
    /// # Errors
    /// [`BadInput`] if they need `--unsafe`, or one is ineffective.
    pub fn options(&self) -> Result<Options> {
        let options = self.how.options;
        refuse_unsafe(&options, self.allow_unsafe)?;
        if let Some(UnusedOption { name, needs, value }) = unused_option(&options) {
            let why = format!("--{name} needs --{needs} {value}: add that, or remove --{name}");
            return Err(BadInput(why).into());
        }
        Ok(options)
    }

    /// Refuses options that need more privileges than the caller has, in setuid mode.
    pub fn refuse_in_setuid_mode(&self) -> Result<(), BadInput> {
        let tcp_options = &self.how.tcp_options;
        let privileged = [
            ("--unsafe", self.allow_unsafe),
            ("--congestion", tcp_options.congestion.is_some()),
            ("--rto-min", tcp_options.rto_min.is_some()),
            ("--delack-max", tcp_options.delack_max.is_some()),
            (
                "--max-connections",
                self.max_connections != Policy::MAX_CONNECTIONS,
            ),
        ];
        let given = privileged.into_iter().find(|(_, given)| *given);
        given.map_or(Ok(()), |(option, _)| refuse_if_setuid(option))
    }

    /// Returns the caps; `None` without any.
    pub fn caps(&self) -> Option<RedundancyCaps> {
        (self.caps != RedundancyCaps::default()).then_some(self.caps)
    }

    /// Returns the maximum number of connections, and a warning if the memory limit lowers it.
    /// `observed` connections take more memory.
    ///
    /// # Errors
    /// [`BadInput`] if the programs cannot be loaded within the limit: the kernel would kill pillion.
    pub fn max_connections(&self, observed: bool) -> Result<(u32, Option<String>), BadInput> {
        let requested = self.max_connections;
        let Some(available) = available_memory() else {
            return Ok((requested, None));
        };
        let fitting = Policy::connections_within(available, observed).ok_or_else(|| {
            BadInput(format!(
                "the cgroup's memory limit leaves {} MiB, but loading the programs takes {} MiB; raise \
                 that limit (MemoryMax= of a service)",
                available >> 20,
                Policy::MIN_MEMORY_MIB
            ))
        })?;
        let max = fitting.min(requested);
        let warning = (max < requested).then(|| {
            format!(
                "--max-connections lowered from {requested} to {max}: the cgroup's memory limit leaves \
                 {} MiB; raise that limit (MemoryMax= of a service) for more connections",
                available >> 20
            )
        });
        Ok((max, warning))
    }

    /// Formats the options as on the command line, without options that are off.
    pub fn to_command_line(&self) -> Result<String> {
        let mut how = self.how;
        how.options = how.options.resolved();
        let keys = toml::to_string(&how)?;
        let options = keys
            .lines()
            .filter_map(|line| match line.split_once(" = ")? {
                (_, "false") => None,
                (name, "true") => Some(format!("--{name}")),
                (name, value) => Some(format!("--{name} {}", value.trim_matches('"'))),
            });
        Ok(options.collect::<Vec<_>>().join(" "))
    }

    /// Finds the devices of these network namespaces.
    ///
    /// # Errors
    /// If no device is found.
    pub fn targets(&self, namespaces: &Namespaces) -> Result<AttachTargets, Error> {
        let targets = AttachTargets::new(&self.devices, namespaces, self.hook())?;
        targets.devices()?;
        Ok(targets)
    }

    /// Returns the attachment point.
    pub fn hook(&self) -> Hook {
        self.hook.unwrap_or_else(Hook::of_this_kernel)
    }
}

// Conditions of connections and namespaces on the command line.

/// Conditions of connections.
#[derive(clap::Args)]
pub struct ConnectionMatchArgs {
    /// Connections with this local or remote port, or a range such as 8000-8100; repeatable
    #[arg(long = "port", value_name = "PORTS")]
    ports: Vec<Ports>,

    /// Connections with a peer at this address, network or host name, as in 192.0.2.0/24; repeatable
    #[arg(long = "peer", value_name = "PEER")]
    pub peers: Vec<Peer>,

    /// Connections of sockets in this cgroup or below, as in `/proc/PID/cgroup`, with the wildcards of
    /// shells: '/system.slice/game-*.service'. It may be created later; repeatable
    #[arg(long = "cgroup", value_name = "CGROUP")]
    pub cgroups: Vec<CgroupName>,

    /// Connections of this container, in its own network namespace as well: its name, or POD,
    /// NAMESPACE/POD or NAMESPACE/POD/CONTAINER, with wildcards: 'web-*'. It may be created later;
    /// repeatable
    #[arg(long = "container", value_name = "NAME", conflicts_with = "cgroups")]
    containers: Vec<ContainerName>,

    /// Connections of containers with this label or annotation, if the files of their runtime contain
    /// it; the value may have wildcards; repeatable
    #[arg(
        long = "container-label",
        value_name = "KEY=VALUE",
        conflicts_with = "cgroups"
    )]
    labels: Vec<ContainerLabel>,
}

/// Network namespaces of connections.
#[derive(clap::Args)]
pub struct NamespaceArgs {
    /// Network namespace to serve instead of pillion's own: a name under /run/netns, a file, or the PID
    /// of a process in it; names and files may have wildcards: 'cni-*'; repeatable (its own:
    /// /proc/self/ns/net)
    #[arg(long = "netns", value_name = "NAMESPACE")]
    pub named: Vec<NamespaceName>,
}

impl ConnectionMatchArgs {
    /// Returns true without any condition.
    pub fn is_empty(&self) -> bool {
        let no_address = self.ports.is_empty() && self.peers.is_empty();
        no_address && self.cgroups.is_empty() && self.containers().is_empty()
    }

    /// Returns the conditions on containers.
    pub fn containers(&self) -> ContainerSelector {
        ContainerSelector {
            names: self.containers.clone(),
            labels: self.labels.clone(),
        }
    }

    /// Returns the rule for these connections.
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
            tcp_options: how.tcp_options,
            ..Rule::all(options)
        }
    }

    /// Describes the conditions; `None` without any.
    pub fn description(&self) -> Option<String> {
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

    /// Sorts all values, so that the description does not depend on their order.
    pub fn sorted(&self) -> Self {
        Self {
            ports: sorted(&self.ports),
            peers: sorted(&self.peers),
            cgroups: sorted(&self.cgroups),
            containers: sorted(&self.containers),
            labels: sorted(&self.labels),
        }
    }
}

/// Joins values of one kind by `or`.
fn list(kind: &str, values: &[impl ToString]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
}

/// Sorts by length and text, so that numbers are in the order of their values.
pub fn sorted<T: Clone + ToString>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort_by_cached_key(|it| {
        let text = it.to_string();
        (text.len(), text)
    });
    all
}

/// Starts the helper process that detaches all programs in these namespaces if this process is killed.
pub fn start_cleanup_helper(programs: &Programs, namespaces: &Namespaces) -> Result<CleanupHelper> {
    let cleanup = programs.cleanup();
    let capabilities = cleanup_capabilities(&cleanup, namespaces);
    let helper = spawn_cleanup_helper(&capabilities, || cleanup.run(namespaces, None));
    helper.context("start the cleanup helper")
}

/// Returns the capabilities to remove filters in these namespaces. Links need none.
pub fn cleanup_capabilities(cleanup: &KillCleanup, namespaces: &Namespaces) -> CapsHashSet {
    let mut needed = CapsHashSet::new();
    if cleanup.has_filters() {
        needed.extend(FOR_DEVICES);
        let is_own_only = namespaces.is_own_only();
        needed.extend(FOR_NAMESPACES.iter().filter(|_| !is_own_only));
        // The files of container runtimes.
        let has_containers = !namespaces.container_selectors.is_empty();
        needed.extend(FOR_FILES.iter().filter(|_| has_containers));
    }
    needed
}
