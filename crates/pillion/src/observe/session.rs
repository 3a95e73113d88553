//! The time through which connections are observed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bpf::{Attachment, Change, Observation, Observing, Programs, Selection};
use pillion_cli::disposition::{is_ignored, outlive_file_limit};
use pillion_cli::print::say_line;
use pillion_stats::report::number;

use super::args::ObserveArgs;
use crate::bundling::BundlingArgs;
use crate::chosen;
use crate::descriptors::Descriptors;
use crate::follow::{Watcher, until_readable_or};
use crate::janitor::Janitor;
use crate::rules::{Rules, of_the_view};
use crate::service::status_socket;
use crate::signals;
use crate::stats::Stats;

/// How long what is observed is left to itself.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The signals that end it.
const ENDS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Those that `attach` takes for requests: who sends them to all pillions is to cost none its findings.
const REQUESTS: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Connections are observed while this lives.
pub struct Session {
    attachment: Attachment,
    selection: Selection,
    teller: Teller,
    signals: SignalFd,
    end: Option<Instant>,
    _janitor: Janitor,
}

/// Why it goes on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
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
        say_line!("pillion: {change}");
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        // What fails is said there.
        let _ = self.rules.keep_up(attachment, selection);
        self.rules.tell_of_idle(selection);
        self.stats.keep_up(attachment);
    }
}

impl Session {
    /// Begins to observe, for so long if at all for a time; what is said then begins with `what`.
    pub fn begin(
        args: &ObserveArgs,
        bundling: &BundlingArgs,
        observing: Observing,
        duration: Option<Duration>,
        what: &str,
    ) -> Result<Self> {
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let namespaces = args.namespaces();
        let mut selection = bundling.selection(&namespaces)?;
        let stats = Stats::to(args.stats.clone())?;
        let hang_up = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        let signals = ENDS.into_iter().chain(REQUESTS).chain(hang_up);
        let signals = signals::receive(signals)?;
        let policy = args.policy(bundling, &selection, observing)?;
        let rules = Rules::of(policy.clone())?;
        let programs = Programs::load(&policy)?.by(bundling.hook());
        let janitor = chosen::watch(&programs, &namespaces)?;
        let (attachment, changes) = Attachment::begin_everywhere(programs, &mut selection, None)?;
        say_line!("pillion: {what} {}; end with Ctrl-C", args.chosen());
        let mut teller = Teller { stats, rules };
        changes.iter().for_each(|change| teller.tell(change));
        if let Some(view) = of_the_view() {
            say_line!("pillion: {view}");
        }
        teller.rules.tell_of_idle(&selection);
        tell_of_others();
        Ok(Self {
            attachment,
            selection,
            teller,
            signals,
            // One that no clock comes to is none.
            end: duration.and_then(|it| Instant::now().checked_add(it)),
            _janitor: janitor,
        })
    }

    /// Waits for a moment; then gives what was observed by then.
    pub fn next(&mut self) -> Result<(Next, Vec<Observation>)> {
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
        let has_come = until_readable_or(signals, attachment, selection, until, teller);
        let is_told = has_come.context("wait for a signal")? && self.heed()?;
        let next = match (is_told, self.end) {
            (true, _) => Next::Stop,
            (false, Some(end)) if Instant::now() >= end => Next::Over,
            _ => Next::GoOn,
        };
        Ok((next, self.attachment.observations()?))
    }

    /// Does what the signal that has come asks for; true if it ends this.
    fn heed(&mut self) -> Result<bool> {
        let Some(signal) = signals::read(&self.signals)? else {
            return Ok(false);
        };
        match Signal::try_from(signal.ssi_signo.cast_signed()) {
            Ok(Signal::SIGUSR1) => self.teller.stats.now(&self.attachment),
            // Nothing is handed over.
            Ok(Signal::SIGUSR2) => {}
            _ => return Ok(true),
        }
        Ok(false)
    }

    /// Ends it, with the account of what was done.
    pub fn finish(mut self) -> Result<()> {
        self.attachment.finish();
        tell_of_others();
        let totals = self.attachment.totals()?;
        if totals.unobserved > 0 {
            say_line!(
                "pillion: not observed: {}, for more than --max-connections were there, or for \
                 want of kernel memory",
                number::counted(totals.unobserved, "connection")
            );
        }
        self.teller.stats.write(&totals)
    }
}

/// Says which other pillions bundle here: what one has bundled, another leaves as it is, so that
/// nothing can be told of connections that both have.
fn tell_of_others() {
    for other in status_socket::ask().unwrap_or_default().healths {
        say_line!(
            "pillion: process {} is bundling here as well ({}): of what it bundles nothing is \
             learnt; end it meanwhile, or choose other connections",
            other.pid,
            other.bundling
        );
    }
}
