//! `pillion attach`: its options, and the policy from them or from a rules file.

mod daemon;
mod start;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Id;
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::{
    Device, Error, FollowedRules, NamespaceName, Namespaces, Policy, Programs, Rule, Scope,
    cgroup2_mount,
};
use pillion_cli::disposition::{ignore_file_limit_signal, is_ignored};
use pillion_cli::log as logger;
use pillion_cli::print::print_line;
use pillion_cli::settings::policy::{self, DefaultMode, File};
use pillion_cli::settings::{BadInput, Bundling, OutputConfig, arguments};
use pillion_stats::report::number::counted;

use crate::args::{BundlingArgs, ConnectionMatchArgs, HoldbackArgs, NamespaceArgs};
use crate::handover::{detach_from_old_process, remember_program, take_over};
use crate::process::{Descriptors, block_signals, receive_signals};
use crate::rules::covers_nothing;
use crate::service::{PendingService, is_in_use};
use crate::stats::Stats;
use daemon::End;

/// Bundle selected connections of the whole host, until a signal ends it
///
/// Selects connections of this network namespace (or of others, with --netns) by port, peer, cgroup or
/// container, or by the rules of a file. Existing connections are included. All others are bundled when
/// their application requests it with a socket option (docs/guides/socket-api.md). However pillion ends,
/// nothing remains except the TCP options of connections.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    matches: ConnectionMatchArgs,

    /// All connections
    #[arg(long, conflicts_with_all = arguments::<ConnectionMatchArgs>())]
    all: bool,

    /// Mode of connections that are not selected
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    default_mode: DefaultMode,

    /// Select connections and options by the rules in FILE; SIGHUP reloads it. `-` is standard input,
    /// which is read once
    #[arg(long, value_name = "FILE", conflicts_with_all = options_of_the_file())]
    config: Option<PathBuf>,

    #[command(flatten)]
    namespaces: NamespaceArgs,

    /// Wait for devices, network namespaces and the cgroup hierarchy, as at boot; --netns accepts no PID
    /// then
    #[arg(long)]
    wait: bool,

    /// Only check the file, and print a line for each mistake
    #[arg(long, requires = "config")]
    check_config: bool,

    /// Print what would be done, and exit
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputConfig,

    #[command(flatten)]
    holdback: HoldbackArgs,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// Returns the options that a rules file replaces.
fn options_of_the_file() -> impl Iterator<Item = Id> {
    let choice = arguments::<ConnectionMatchArgs>().into_iter();
    let choice = choice.chain(["all", "default_mode", "holdback"].map(Id::from));
    choice.chain(arguments::<Bundling>())
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        logger::start("pillion", self.output.log_level.unwrap_or_default());
        detach_from_old_process()?;
        remember_program()?;
        // Resolution of host names in the file takes time.
        block_signals(self.request_signals())?;
        let mut config = match self.config()? {
            Ok(config) => config,
            Err(mistakes) => {
                logger::mistakes(&mistakes.to_string());
                return Ok(ExitCode::from(2));
            }
        };
        if self.check_config {
            self.check_config(config)?;
            return Ok(ExitCode::SUCCESS);
        }
        logger::start("pillion", config.output.log_level.unwrap_or_default());
        Descriptors::raise();
        ignore_file_limit_signal().context("ignore SIGXFSZ")?;
        let stats = Stats::new(config.output.stats.clone())?;
        if self.dry_run {
            self.dry_run(&config)?;
            return Ok(ExitCode::SUCCESS);
        }
        let signals = self.signals()?;
        let pending = PendingService::start(self.description(&config.policy));
        if let Some(targets) = self.find_targets(&mut config, &pending, &signals)? {
            let mut daemon = self.start(config, targets, stats, pending)?;
            take_over()?;
            let end = daemon.run(&signals)?;
            daemon.stop(end, &signals)?;
            if end == End::HelperExited {
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Blocks the signals of a running or waiting daemon, and returns a descriptor to read them.
    fn signals(&self) -> Result<SignalFd> {
        let mut signals = self.request_signals();
        signals.extend([Signal::SIGINT, Signal::SIGTERM]);
        // `nohup` ignores SIGHUP.
        if !is_ignored(Signal::SIGHUP) {
            signals.push(Signal::SIGHUP);
        }
        receive_signals(signals)
    }

    /// Returns the signals that request an action other than to stop.
    fn request_signals(&self) -> Vec<Signal> {
        let reload = self.config.as_ref().map(|_| Signal::SIGHUP);
        let requests = [Signal::SIGUSR1, Signal::SIGUSR2];
        requests.into_iter().chain(reload).collect()
    }
}

/// Returns true if a SIGHUP comes from the end of a terminal, and does not request a reload.
fn is_from_terminal(info: &siginfo) -> bool {
    info.ssi_code == libc::SI_KERNEL || fs::File::open("/dev/tty").is_ok()
}

// The configuration, from the options or the rules file.

/// Name of standard input in `--config`.
const STANDARD_INPUT: &str = "-";

/// Configuration from the options and the rules file.
struct AttachConfig {
    pub policy: Policy,
    pub namespaces: Namespaces,
    pub output: OutputConfig,
}

impl Args {
    /// Returns the configuration. The inner error has a line for each mistake in the file.
    fn config(&self) -> Result<Result<AttachConfig, BadInput>> {
        let file = match &self.config {
            None => Ok(File {
                policy: self.policy()?,
                namespaces: Vec::new(),
                output: OutputConfig::default(),
            }),
            Some(file) => self.read(file),
        };
        Ok(file.map(|file| AttachConfig {
            namespaces: self.namespaces(file.namespaces, &file.policy),
            policy: file.policy,
            output: self.output(file.output),
        }))
    }

    /// Merges the options with the file; options take precedence.
    fn output(&self, of_the_file: OutputConfig) -> OutputConfig {
        self.output.clone().or(of_the_file)
    }

    /// Returns the policy of the options: one rule, or none.
    fn policy(&self) -> Result<Policy> {
        let options = self.bundling.options()?;
        let selects = self.all || !self.matches.is_empty();
        if self.default_mode == DefaultMode::Never && !selects {
            let why = "--default-mode never without a selection covers nothing: select connections with \
                       --port, --peer, --cgroup or --container";
            return Err(BadInput(why.to_owned()).into());
        }
        let rule = Rule {
            holdback: self.holdback.holdback,
            ..self.matches.rule(&self.bundling.how, options)
        };
        let needed = rule.rows();
        if needed > Policy::MAX_ROWS {
            return Err(Error::TooManyRules { needed }.into());
        }
        let is_unneeded = rule.tcp_options.is_empty() && rule.holdback.is_none();
        if !selects && !is_unneeded {
            let why = "TCP options and --holdback need selected connections: select some with --port or \
                       --peer, or all with --all";
            return Err(BadInput(why.to_owned()).into());
        }
        Ok(Policy {
            rules: if selects { vec![rule] } else { Vec::new() },
            default_mode: self.default_mode.mode(options),
            scope: Scope::ThisNamespace,
            redundancy_caps: self.bundling.caps(),
            ..Policy::default()
        })
    }

    /// Reads the file. Options take precedence over its caps.
    fn read(&self, file: &Path) -> Result<File, BadInput> {
        let mut file = policy::load(file, self.bundling.allow_unsafe)?;
        let caps = file.policy.redundancy_caps.unwrap_or_default();
        // Also without caps, because a reload may add some.
        file.policy.redundancy_caps = Some(self.bundling.caps.or(caps));
        Ok(file)
    }

    /// Returns the namespaces of the command line or, without any, of the file; adds the namespaces of
    /// containers in rules.
    fn namespaces(&self, of_the_file: Vec<NamespaceName>, policy: &Policy) -> Namespaces {
        let named = &self.namespaces.named;
        let namespaces = Namespaces {
            named: match named.is_empty() {
                true => of_the_file,
                false => named.clone(),
            },
            container_selectors: policy.container_selectors(),
        };
        match self.wait {
            true => namespaces.without_processes(),
            false => namespaces,
        }
    }

    /// Describes the selected connections.
    fn description(&self, policy: &Policy) -> String {
        if let Some(file) = &self.config {
            let rules = counted(policy.rules.len() as u64, "rule");
            return format!("by {rules} of {}", display_name(file));
        }
        let description = self.matches.description();
        description.unwrap_or_else(|| match self.all {
            true => "all connections".to_owned(),
            false => "connections whose application requests it".to_owned(),
        })
    }

    /// Returns true if the rules come from standard input, which cannot be reloaded.
    fn reads_standard_input(&self) -> bool {
        self.config.as_deref().is_some_and(is_standard_input)
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// Returns the name of a rules file for messages.
fn display_name(file: &Path) -> String {
    match is_standard_input(file) {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    }
}

// Checks that attach nothing: `--check-config` and `--dry-run`.

impl Args {
    /// Reports that the file is valid, and rules that cover nothing now.
    fn check_config(&self, config: AttachConfig) -> Result<()> {
        let description = self.description(&config.policy);
        let containers = config.namespaces.containers();
        let rules = FollowedRules::new(Policy {
            running: containers.running().to_vec(),
            ..config.policy
        })?;
        let unmatched = rules.unmatched_rules(&containers).into_iter();
        let unmatched = unmatched.map(|it| covers_nothing(&it));
        for warning in unmatched.chain(containers.unreadable_warning()) {
            log::warn!("{warning}");
        }
        print_line!("no mistake: would bundle {description}")
    }

    /// Loads the programs and prints what would be bundled, and where.
    fn dry_run(&self, config: &AttachConfig) -> Result<()> {
        Programs::load(&config.policy)?;
        let metrics = config.output.metrics.as_ref();
        let metrics = metrics.map(|it| Ok::<_, anyhow::Error>((it, is_in_use(it)?)));
        let metrics = metrics.transpose()?;
        let devices = self.resolve_targets(&config.namespaces)?.devices()?;
        let description = self.description(&config.policy);
        print_line!("would bundle {description} on {}", names(&devices))?;
        print_line!("would attach to the cgroup {}", cgroup2_mount()?.display())?;
        if let Some((endpoint, is_in_use)) = metrics {
            let note = if is_in_use { ", which is in use" } else { "" };
            print_line!("would serve metrics at {endpoint}{note}")?;
        }
        match self.config {
            Some(_) => Ok(()),
            None => print_line!("with {}", self.bundling.to_command_line()?),
        }
    }
}

/// Lists devices for messages.
fn names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    let devices = devices.into_iter();
    let names: Vec<_> = devices.map(ToString::to_string).collect();
    match names.is_empty() {
        true => "no device yet".to_owned(),
        false => names.join(", "),
    }
}
