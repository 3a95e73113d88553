//! `pillion advise` and `pillion trial`: what is observed of connections, and what it says.

mod advise;
mod config;
mod trial;
mod words;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Arg;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bundler::{
    Attachment, Change, NamespaceName, Namespaces, Observation, Observing, Policy, Programs,
    Selection, cgroup2_mount,
};
use pillion_settings::BadInput;
use pillion_settings::policy;
use pillion_settings::times::{parse_ms, parse_s};

pub use advise::Args as AdviseArgs;
pub use trial::Args as TrialArgs;

use crate::bundling::BundlingArgs;
use crate::chosen::{self, ChoiceArgs, NamespaceArgs, in_order};
use crate::descriptors::Descriptors;
use crate::disposition::{is_ignored, outlive_file_limit};
use crate::follow::{Watcher, until_readable_or};
use crate::janitor::Janitor;
use crate::output_file::OutputFile;
use crate::print::say;
use crate::rules::{Rules, of_the_view};
use crate::service::status_socket;
use crate::signals;
use crate::stats::Stats;
use config::Conditions;

/// Which connections are observed, how, and how long.
#[derive(clap::Args)]
#[command(mut_arg("ports", with_its_default))]
pub struct ObserveArgs {
    #[command(flatten)]
    choice: ChoiceArgs,

    #[command(flatten)]
    namespaces: NamespaceArgs,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_s)]
    duration: Option<Duration>,

    /// Milliseconds beyond the least RTT that are not called late: receivers may take so long to
    /// acknowledge
    #[arg(long, value_name = "MS", default_value = "50", value_parser = parse_us)]
    grace: u32,

    /// Milliseconds of ACK latency beyond which a segment stalls
    #[arg(long, value_name = "MS", default_value = "300", value_parser = parse_us)]
    stall: u32,

    /// Keep the account of what was done in FILE, as JSON: each ten seconds, and at the end
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Print JSON at the end
    #[arg(long)]
    json: bool,

    /// Write a report with figures as well, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Here, where nothing is chosen, all is.
fn with_its_default(choice: Arg) -> Arg {
    let help = choice.get_help().cloned().unwrap_or_default();
    choice.help(format!("{help} [default: all connections]"))
}

/// Whole microseconds of a time in milliseconds.
fn parse_us(text: &str) -> Result<u32, BadInput> {
    let time = parse_ms(text)?;
    match time <= Duration::from_secs(3600) {
        true => Ok(time.as_micros() as u32),
        false => Err("at most an hour".into()),
    }
}

impl ObserveArgs {
    /// The report's file, of which it is found out before anything is begun that it can be written.
    fn report(&self) -> Result<Option<OutputFile>> {
        let file = self.html.as_deref();
        file.map(|file| OutputFile::to("--html", file)).transpose()
    }

    /// The connections that are chosen, in words, alike in whatever order they are named.
    fn chosen(&self) -> String {
        let words = self.choice.in_order().words();
        words.unwrap_or_else(|| "all connections".to_owned())
    }

    /// Devices and network namespaces that are named, in words.
    fn places(&self, bundling: &BundlingArgs) -> String {
        let devices = bundling.devices.iter();
        let devices: Vec<_> = devices.map(|it| it.to_string_lossy()).collect();
        let (devices, namespaces) = (in_order(&devices), in_order(&self.said_namespaces()));
        match (devices.is_empty(), namespaces.is_empty()) {
            (true, true) => "all devices of its own network namespace".to_owned(),
            (true, false) => format!("all devices of {}", namespaces.join(", ")),
            (false, true) => devices.join(", "),
            (false, false) => format!("{} of {}", devices.join(", "), namespaces.join(", ")),
        }
    }

    /// The network namespaces, as they were named.
    fn said_namespaces(&self) -> Vec<String> {
        let said = |name: &NamespaceName| name.as_said().to_string_lossy().into_owned();
        self.namespaces.named.iter().map(said).collect()
    }

    /// All of that, for rules that are to choose no others.
    fn conditions(&self) -> Conditions {
        let containers = self.choice.containers();
        Conditions {
            rule: policy::Rule {
                peers: self.choice.peers.clone(),
                cgroup: self.choice.cgroups.clone(),
                container: containers.names,
                container_label: containers.labels,
                ..policy::Rule::default()
            },
            namespaces: self.namespaces.named.clone(),
        }
    }

    /// Where they are.
    fn namespaces(&self) -> Namespaces {
        let containers = Some(self.choice.containers());
        Namespaces {
            named: self.namespaces.named.clone(),
            of_containers: containers.into_iter().filter(|it| !it.is_empty()).collect(),
        }
    }

    fn policy(
        &self,
        bundling: &BundlingArgs,
        selection: &Selection,
        observing: Observing,
    ) -> Result<Policy> {
        let options = bundling.options()?;
        Ok(Policy {
            rules: vec![self.choice.rule(&bundling.how, options)],
            otherwise: pillion_bundler::Mode::LeaveAlone,
            running: selection.containers().to_vec(),
            scope: chosen::scope(&self.namespaces(), selection),
            max_connections: bundling.max_connections,
            observing: Some(observing),
        })
    }

    /// Begins to observe, for so long if at all for a time; what is said then begins with `what`.
    fn begin(
        &self,
        bundling: &BundlingArgs,
        observing: Observing,
        duration: Option<Duration>,
        what: &str,
    ) -> Result<Session> {
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let hook = bundling.hook();
        let namespaces = self.namespaces();
        let mut selection = Selection::new(&bundling.devices, &namespaces, hook)?;
        selection.devices()?;
        let mount = cgroup2_mount()?;
        let stats = Stats::to(self.stats.clone())?;
        let hang_up = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        let signals = [Signal::SIGINT, Signal::SIGTERM].into_iter().chain(hang_up);
        let signals = signals::receive(signals)?;
        let policy = self.policy(bundling, &selection, observing)?;
        let mut rules = Rules::of(policy.clone())?;
        let programs = Programs::load(&policy)?.by(hook);
        let janitor = chosen::watch(&programs, &namespaces)?;
        let cgroup = File::open(&mount).with_context(|| format!("open {}", mount.display()))?;
        let (attachment, changes) =
            Attachment::begin(programs, cgroup.as_fd(), &mut selection, None)?;
        attachment.review()?;
        say(&format!(
            "pillion: {what} {}; end with Ctrl-C",
            self.chosen()
        ));
        for change in changes {
            say(&format!("pillion: {change}"));
        }
        if let Some(view) = of_the_view(&mount) {
            say(&format!("pillion: {view}"));
        }
        rules.tell_of_idle(&selection);
        tell_of_others();
        Ok(Session {
            attachment,
            selection,
            teller: Teller { stats, rules },
            signals,
            // One that no clock comes to is none.
            end: duration.and_then(|it| Instant::now().checked_add(it)),
            _janitor: janitor,
        })
    }
}

/// Says which other pillions bundle here: what one has bundled, another leaves as it is, so that
/// nothing can be told of connections that both have.
fn tell_of_others() {
    for other in status_socket::ask().unwrap_or_default().healths {
        say(&format!(
            "pillion: process {} is bundling here as well ({}): of what it bundles nothing is \
             learnt; end it meanwhile, or choose other connections",
            other.pid, other.bundling
        ));
    }
}

/// How long what is observed is left to itself.
const A_MOMENT: Duration = Duration::from_secs(1);

/// Connections are observed while this lives.
struct Session {
    attachment: Attachment,
    selection: Selection,
    teller: Teller,
    signals: SignalFd,
    end: Option<Instant>,
    _janitor: Option<Janitor>,
}

/// Why it goes on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    /// The time is over that was said before.
    Over,
    /// A signal has come.
    Stop,
}

/// Says what changes, has the rules follow it, and keeps the account.
struct Teller {
    stats: Stats,
    rules: Rules,
}

impl Watcher for Teller {
    fn tell(&mut self, change: &Change) {
        say(&format!("pillion: {change}"));
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        // What fails is said there.
        let _ = self.rules.keep_up(attachment, selection);
        self.rules.tell_of_idle(selection);
        self.stats.keep_up(attachment);
    }
}

impl Session {
    /// Waits for a moment; then gives what was observed by then.
    fn next(&mut self) -> Result<(Next, Vec<Observation>)> {
        let moment = Instant::now() + A_MOMENT;
        let until = self.end.map_or(moment, |end| end.min(moment));
        let Self {
            attachment,
            selection,
            teller,
            signals,
            ..
        } = self;
        let until = Some(until);
        let signal = until_readable_or(signals, attachment, selection, until, teller);
        let next = match (signal.context("wait for a signal")?, self.end) {
            (true, _) => Next::Stop,
            (false, Some(end)) if Instant::now() >= end => Next::Over,
            _ => Next::GoOn,
        };
        Ok((next, attachment.observations()?))
    }

    /// Ends it, with the account of what was done.
    fn finish(mut self) -> Result<()> {
        self.attachment.finish();
        tell_of_others();
        let totals = self.attachment.totals()?;
        if totals.unobserved > 0 {
            say(&format!(
                "pillion: {} connections were not observed, for more than --max-connections were \
                 there, or for want of kernel memory",
                totals.unobserved
            ));
        }
        self.teller.stats.write(&totals)
    }
}
