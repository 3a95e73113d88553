//! `pillion attach`: its options, and the policy that they or a file of rules request.

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
    Device, Error, FollowedRules, NamespaceName, Namespaces, Policy, Programs, Scope, cgroup2_mount,
};
use pillion_cli::disposition::{is_ignored, outlive_file_limit};
use pillion_cli::print::{print_line, say, say_line};
use pillion_cli::settings::policy::{self, File, Otherwise};
use pillion_cli::settings::{BadInput, Bundling, Telling, arguments};
use pillion_stats::report::number::counted;

use crate::args::{BundlingArgs, ChoiceArgs, NamespaceArgs};
use crate::handover::{leave_predecessor, remember_program, take_over};
use crate::process::{Descriptors, block_signals, receive_signals};
use crate::service::{Announced, is_taken};
use crate::stats::Stats;

/// Bundle chosen connections of the whole host, until a signal ends it
///
/// Connections of this network namespace (or others, with --netns) are chosen by port (local
/// or remote) and by peer, or by the rules of a file; those that exist already are taken in.
/// Others are bundled once their application asks for it with a socket option
/// (docs/socket-option.md), so that without any choice these alone are. Nothing stays behind when
/// pillion ends, however it ends, but the companions that connections got.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: ChoiceArgs,

    /// All connections
    #[arg(long, conflicts_with_all = arguments::<ChoiceArgs>())]
    all: bool,

    /// What becomes of connections that are not chosen
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    otherwise: Otherwise,

    /// Connections that the rules in FILE choose, bundled as they say; SIGHUP has it read
    /// again. `-` is standard input, which is read once
    #[arg(long, value_name = "FILE", conflicts_with_all = in_the_file())]
    config: Option<PathBuf>,

    #[command(flatten)]
    namespaces: NamespaceArgs,

    /// Wait for devices, network namespaces and cgroups that are not there yet, as at boot, and say so;
    /// --netns takes no PID then
    #[arg(long)]
    wait: bool,

    /// Only say what is wrong with the file, a line for each mistake
    #[arg(long, requires = "config")]
    check_config: bool,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    telling: Telling,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// What the file says, if there is one.
fn in_the_file() -> impl Iterator<Item = Id> {
    let choice = arguments::<ChoiceArgs>().into_iter();
    let choice = choice.chain(["all", "otherwise"].map(Id::from));
    choice.chain(arguments::<Bundling>())
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        leave_predecessor()?;
        remember_program()?;
        // The file may name hosts, whose addresses take their time.
        block_signals(self.requests())?;
        let mut asked = match self.asked()? {
            Ok(asked) => asked,
            Err(mistakes) => {
                say(&mistakes.to_string());
                return Ok(ExitCode::from(2));
            }
        };
        if self.check_config {
            self.check_config(asked)?;
            return Ok(ExitCode::SUCCESS);
        }
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let stats = Stats::to(asked.telling.stats.clone())?;
        if self.dry_run {
            self.dry_run(&asked)?;
            return Ok(ExitCode::SUCCESS);
        }
        let signals = self.signals()?;
        let announced = Announced::begin(self.connections(&asked.policy));
        if let Some(selection) = self.place(&mut asked, &announced, &signals)? {
            let mut daemon = self.begin(asked, selection, stats, announced)?;
            take_over()?;
            let why = daemon.run(&signals)?;
            daemon.end(why, &signals)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What it hears while it is at work, or waits to be.
    fn signals(&self) -> Result<SignalFd> {
        let mut signals = self.requests();
        signals.extend([Signal::SIGINT, Signal::SIGTERM]);
        // As `nohup` has it, the end of a terminal is nothing to pillion.
        if !is_ignored(Signal::SIGHUP) {
            signals.push(Signal::SIGHUP);
        }
        receive_signals(signals)
    }

    /// The signals that ask something of it, and do not end it.
    fn requests(&self) -> Vec<Signal> {
        let read_again = self.config.as_ref().map(|_| Signal::SIGHUP);
        let requests = [Signal::SIGUSR1, Signal::SIGUSR2];
        requests.into_iter().chain(read_again).collect()
    }
}

/// Has the end of a terminal sent it? Others mean that something be read again.
fn is_terminals(info: &siginfo) -> bool {
    info.ssi_code == libc::SI_KERNEL || fs::File::open("/dev/tty").is_ok()
}

// The request, by the options or by the file of rules.

/// The file that is none.
const STANDARD_INPUT: &str = "-";

/// What is asked for.
struct Asked {
    pub policy: Policy,
    pub namespaces: Namespaces,
    pub telling: Telling,
}

impl Args {
    /// All of it; the inner error is a line for each mistake in the file.
    fn asked(&self) -> Result<Result<Asked, BadInput>> {
        let file = match &self.config {
            None => Ok(File {
                policy: self.policy()?,
                namespaces: Vec::new(),
                telling: Telling::default(),
            }),
            Some(file) => self.read(file),
        };
        Ok(file.map(|file| Asked {
            namespaces: self.namespaces(file.namespaces, &file.policy),
            policy: file.policy,
            telling: self.telling(file.telling),
        }))
    }

    /// What the command line leaves open is as the file has it.
    fn telling(&self, of_the_file: Telling) -> Telling {
        self.telling.clone().or(of_the_file)
    }

    /// What the options on the command line make: one rule, or none.
    fn policy(&self) -> Result<Policy> {
        let options = self.bundling.options()?;
        let chosen = self.all || !self.choice.is_empty();
        if self.otherwise == Otherwise::LeaveAlone && !chosen {
            let why = "--otherwise leave-alone leaves all alone: choose connections with \
                       --port, --peer, --cgroup or --container";
            return Err(BadInput(why.to_owned()).into());
        }
        let rule = self.choice.rule(&self.bundling.how, options);
        let needed = rule.rows();
        if needed > Policy::MAX_ROWS {
            return Err(Error::TooManyRules { needed }.into());
        }
        if !chosen && !rule.companions.is_empty() {
            let why = "companions go to chosen connections alone: choose some with --port or \
                       --peer, or take them all with --all";
            return Err(BadInput(why.to_owned()).into());
        }
        Ok(Policy {
            rules: if chosen { vec![rule] } else { Vec::new() },
            otherwise: self.otherwise.mode(options),
            scope: Scope::ThisNamespace,
            ..Policy::default()
        })
    }

    fn read(&self, file: &Path) -> Result<File, BadInput> {
        policy::load(file, self.bundling.allow_unsafe)
    }

    /// Those of the command line, if there are any; else those of the file. Beside, those of the
    /// containers that rules ask for.
    fn namespaces(&self, of_the_file: Vec<NamespaceName>, policy: &Policy) -> Namespaces {
        let named = &self.namespaces.named;
        let namespaces = Namespaces {
            named: match named.is_empty() {
                true => of_the_file,
                false => named.clone(),
            },
            of_containers: policy.containers(),
        };
        match self.wait {
            true => namespaces.without_processes(),
            false => namespaces,
        }
    }

    /// The connections that these rules choose, in words.
    fn connections(&self, policy: &Policy) -> String {
        if let Some(file) = &self.config {
            let rules = counted(policy.rules.len() as u64, "rule");
            return format!("by {rules} of {}", name(file));
        }
        let words = self.choice.words();
        words.unwrap_or_else(|| match self.all {
            true => "all connections".to_owned(),
            false => "connections whose application asks for it".to_owned(),
        })
    }

    /// True if the rules are of standard input, which cannot be read again.
    fn reads_standard_input(&self) -> bool {
        self.config.as_deref().is_some_and(is_standard_input)
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// What a file of rules is called in messages.
fn name(file: &Path) -> String {
    match is_standard_input(file) {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    }
}

// Checks that attach nothing: `--check-config` and `--dry-run`.

impl Args {
    /// That the file has no mistake, and what its rules do not cover now.
    fn check_config(&self, asked: Asked) -> Result<()> {
        let chosen = self.connections(&asked.policy);
        let containers = asked.namespaces.containers();
        let rules = FollowedRules::of(Policy {
            running: containers.running().to_vec(),
            ..asked.policy
        })?;
        for idle in rules.idle(containers.in_version_1()) {
            say_line!("pillion: now covers nothing: {idle}");
        }
        print_line!("no mistake: would bundle {chosen}")
    }

    /// What would be bundled, and where, by programs that the kernel has and this user may load.
    fn dry_run(&self, asked: &Asked) -> Result<()> {
        Programs::load(&asked.policy)?;
        let metrics = asked.telling.metrics.as_ref();
        let metrics = metrics.map(|it| Ok::<_, anyhow::Error>((it, is_taken(it)?)));
        let metrics = metrics.transpose()?;
        let devices = self.find(&asked.namespaces)?.devices()?;
        let chosen = self.connections(&asked.policy);
        print_line!("would bundle {chosen} on {}", names(&devices))?;
        print_line!("would attach to the cgroup {}", cgroup2_mount()?.display())?;
        if let Some((endpoint, is_taken)) = metrics {
            let now = match is_taken {
                true => ", where somebody serves now",
                false => "",
            };
            print_line!("would serve metrics at {endpoint}{now}")?;
        }
        match self.config {
            Some(_) => Ok(()),
            None => print_line!("with {}", self.bundling.words()?),
        }
    }
}

/// Devices, in words.
fn names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    let devices = devices.into_iter();
    let names: Vec<_> = devices.map(ToString::to_string).collect();
    match names.is_empty() {
        true => "no device yet".to_owned(),
        false => names.join(", "),
    }
}
