mod follower;
mod place;
mod reload;
mod waiting;

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Id;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use pillion_bundler::{
    Attachment, Device, Error, Hook, NamespaceName, Namespaces, Policy, Programs, Scope,
};
use pillion_report::number::counted;
use pillion_settings::policy::{self, File, Otherwise};
use pillion_settings::{BadInput, Bundling, Endpoint, Telling, arguments};

use crate::account::{reasons, summary};
use crate::bundling::BundlingArgs;
use crate::chosen::{self, ChoiceArgs, NamespaceArgs};
use crate::descriptors::Descriptors;
use crate::disposition::{is_ignored, outlive_file_limit};
use crate::follow::{Watcher, until_readable};
use crate::print::{print_line, say};
use crate::privilege;
use crate::rules::{Rules, of_the_view, running};
use crate::service::{Announced, Service, manager};
use crate::stats::Stats;
use crate::succession::{inherited, is_successors, leave_predecessor, take_over};
use follower::{Follower, say_no_successor};
use place::{Names, Place};
use reload::AtWork;
pub use reload::Reloaded;

/// Bundle chosen connections of the whole host, until a signal ends it
///
/// Connections of this network namespace (or others, with --netns) are chosen by port (local
/// or remote) and by peer, or by the rules of a file; those that exist already are taken in.
/// Others are bundled once their application asks for it with a socket option
/// (docs/sockets.md), so that without any choice these alone are. Nothing stays behind when
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
        let File {
            mut policy,
            namespaces,
            telling,
        } = match &self.config {
            None => File {
                policy: self.policy()?,
                namespaces: Vec::new(),
                telling: Telling::default(),
            },
            Some(file) => match self.read(file) {
                Ok(file) => file,
                Err(mistakes) => {
                    say(&mistakes.to_string());
                    return Ok(ExitCode::from(2));
                }
            },
        };
        let mut namespaces = self.namespaces(namespaces, &policy);
        let chosen = |policy: &Policy| self.connections(policy.rules.len());
        if self.check_config {
            let chosen = chosen(&policy);
            let containers = running();
            let running = containers.running().to_vec();
            let rules = Rules::of(Policy { running, ..policy });
            for idle in rules.idle(containers.in_version_1()) {
                say(&format!("pillion: now covers nothing: {idle}"));
            }
            print_line!("no mistake: would bundle {chosen}")?;
            return Ok(ExitCode::SUCCESS);
        }
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let hook = self.bundling.hook();
        let telling = self.telling.clone().or(telling);
        let stats = Stats::to(telling.stats.clone())?;
        if self.dry_run {
            // What the kernel will not have, or not of this user, is to be known before.
            Programs::load(&policy)?;
            let Place { devices, mount, .. } = self.names(hook, &namespaces).find()?;
            let chosen = chosen(&policy);
            print_line!("would bundle {chosen} on {}", names(&devices))?;
            print_line!("would attach to the cgroup {}", mount.display())?;
            if self.config.is_none() {
                print_line!("with {}", self.bundling.words()?)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        // Blocked first: a signal that comes early must not be lost, nor kill.
        let mut signals = SigSet::from_iter([
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ]);
        // As `nohup` has it, the end of a terminal is nothing to pillion.
        if self.config.is_some() || !is_ignored(Signal::SIGHUP) {
            signals.add(Signal::SIGHUP);
        }
        signals.thread_block().context("block signals")?;
        let signals =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("receive signals")?;
        let announced = Announced::begin(chosen(&policy));
        let place = match self.wait {
            true => self.wait(hook, &announced, &signals, &mut policy, &mut namespaces)?,
            false => Some(self.names(hook, &namespaces).find()?),
        };
        let Some(Place {
            mut selection,
            devices,
            mount,
        }) = place
        else {
            return Ok(ExitCode::SUCCESS);
        };

        let chosen = chosen(&policy);
        let policy = Policy {
            running: selection.containers().to_vec(),
            scope: chosen::scope(&namespaces, &selection),
            max_connections: self.bundling.max_connections,
            ..policy
        };
        // Before they go to the kernel: what comes and goes meanwhile is seen by the difference.
        let rules = Rules::of(policy.clone());
        let programs = Programs::load_after(&policy, inherited())?.by(hook);
        if inherited().is_some_and(|left| !programs.requests().are_as(left)) {
            say(
                "pillion: what applications have asked is forgotten: this version keeps it otherwise",
            );
        }
        let janitor = chosen::watch(&programs, &namespaces)?;
        let cgroup = fs::File::open(&mount).with_context(|| format!("open {}", mount.display()))?;
        let service = Service::begin(&telling, stats, announced)?;
        // They keep their network namespaces from ending, and may have changed since.
        drop((devices, policy));
        let (mut attachment, changes) =
            Attachment::begin(programs, cgroup.as_fd(), &mut selection, None)?;
        attachment.review()?;
        let mut follower = Follower::new(service, rules, of_the_view(&mount));
        let begun = follower
            .service
            .has_begun(chosen.clone(), &attachment, &selection);
        begun?;
        say(&format!(
            "pillion: bundling {chosen} on {}; end with Ctrl-C",
            names(attachment.devices())
        ));
        for change in changes {
            follower.tell(&change);
        }
        follower.tell_of_idle(&selection);

        let has_files = self.config.is_some()
            || telling.stats.is_some()
            || matches!(telling.metrics, Some(Endpoint::Unix(_)))
            || !namespaces.of_containers.is_empty();
        let may_enter = !namespaces.is_own_alone();
        privilege::keep_what_following_takes(may_enter, has_files);
        take_over()?;

        let is_succeeded = loop {
            until_readable(&signals, &mut attachment, &mut selection, &mut follower)
                .context("wait for a signal")?;
            let Some(info) = place::read(&signals)? else {
                continue;
            };
            match (Signal::try_from(info.ssi_signo.cast_signed()), &self.config) {
                (Ok(Signal::SIGHUP), Some(file)) => {
                    manager::reloads();
                    let at_work = AtWork {
                        attachment: &mut attachment,
                        selection: &mut selection,
                        namespaces: &mut namespaces,
                        may_enter,
                        may_change: janitor.is_none(),
                    };
                    let reloaded = self.reload(file, at_work);
                    follower.service.reloaded(&reloaded);
                    match reloaded {
                        Err(why) => say(&why),
                        Ok(Reloaded {
                            rules,
                            log,
                            changes,
                            ..
                        }) => {
                            say(&log);
                            changes.iter().for_each(|change| follower.tell(change));
                            follower.reloaded(rules);
                            follower.tell_of_idle(&selection);
                            let begun = follower.succession.begin_again(attachment.requests());
                            begun.unwrap_or_else(|error| say_no_successor(&error));
                        }
                    }
                }
                (Ok(Signal::SIGHUP), None) if !is_terminals(&info) => {
                    say("pillion: nothing to read again: no --config; SIGTERM ends it");
                }
                (Ok(Signal::SIGUSR1), _) => follower.service.write_stats(&attachment),
                (Ok(Signal::SIGUSR2), _) => {
                    let succession = &mut follower.succession;
                    let may = self.may_be_succeeded();
                    let begun = may.and_then(|()| succession.begin(attachment.requests()));
                    begun.unwrap_or_else(|error| say_no_successor(&error));
                }
                _ if is_successors(&info) && !follower.succession.has_sent(&info) => {}
                _ if is_successors(&info) => {
                    manager::is_succeeded_by(info.ssi_pid);
                    break true;
                }
                _ => break false,
            }
        };
        if !is_succeeded {
            follower.succession.give_up();
            manager::ends();
        }
        attachment.finish();
        let late = place::late(&signals)?;
        let is_succeeded = is_succeeded && !late.end;
        if !is_succeeded {
            follower.succession.give_up();
        } else if late.read_again && self.config.is_some() {
            follower.succession.have_it_read_again();
        }
        let totals = attachment.totals()?;
        say(&format!("pillion: {}", summary(&totals)));
        let reasons = reasons(&totals);
        if !reasons.is_empty() {
            say(&format!("pillion: not bundled: {reasons}"));
        }
        if is_succeeded {
            say("pillion: its successor is at work");
            return Ok(ExitCode::SUCCESS);
        }
        follower.service.end(&attachment)?;
        Ok(ExitCode::SUCCESS)
    }

    fn names<'a>(&'a self, hook: Hook, namespaces: &'a Namespaces) -> Names<'a> {
        Names {
            devices: &self.bundling.devices,
            namespaces,
            hook,
        }
    }

    /// A successor reads all that this process has read.
    fn may_be_succeeded(&self) -> Result<()> {
        if process::id() == 1 {
            bail!("it is the first process of a container, which ends with it; begin another one");
        }
        match &self.config {
            Some(file) if file == Path::new(STANDARD_INPUT) => {
                bail!("the rules of standard input cannot be read again")
            }
            _ => Ok(()),
        }
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
        let namespaces = Namespaces {
            named: match self.namespaces.named.is_empty() {
                true => of_the_file,
                false => self.namespaces.named.clone(),
            },
            of_containers: policy.containers(),
        };
        match self.wait {
            true => namespaces.without_processes(),
            false => namespaces,
        }
    }

    fn connections(&self, rules: usize) -> String {
        if let Some(file) = &self.config {
            return format!("by {} of {}", counted(rules as u64, "rule"), name(file));
        }
        let words = self.choice.words();
        words.unwrap_or_else(|| match self.all {
            true => "all connections".to_owned(),
            false => "connections whose application asks for it".to_owned(),
        })
    }
}

/// Has the end of a terminal sent it? Others mean that something be read again.
fn is_terminals(info: &siginfo) -> bool {
    info.ssi_code == libc::SI_KERNEL || fs::File::open("/dev/tty").is_ok()
}

const STANDARD_INPUT: &str = "-";

/// What a file of rules is called in messages.
fn name(file: &Path) -> String {
    match file == Path::new(STANDARD_INPUT) {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    }
}

fn names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    let devices = devices.into_iter();
    let names: Vec<_> = devices.map(ToString::to_string).collect();
    match names.is_empty() {
        true => "no device yet".to_owned(),
        false => names.join(", "),
    }
}
