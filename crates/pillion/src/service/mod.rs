//! What a pillion that stays tells of itself: `status`, metrics, totals in the log.

mod health;
mod http;
pub mod manager;
mod metrics;
mod open_metrics;
pub mod status_socket;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{Attachment, Change, Selection};
use pillion_cli::print::say_line;
use pillion_cli::settings::Telling;

use crate::follow::Watcher;
use crate::stats::{Stats, summary};
use health::Shared;
use metrics::Metrics;
use status_socket::Listener;

pub use health::{Health, now};
pub use metrics::is_taken;

const OUT_OF_DATE: &str = "the file of the rules was not reloaded, and the old ones hold";

/// A pillion as those see it who look after it.
pub struct Service {
    shared: Arc<Shared>,
    stats: Stats,
    /// What keeps the file of `--stats` from being written.
    stats_fail: Option<String>,
    /// What keeps the rules from following cgroups.
    rules_fail: Option<String>,
    /// Whether the file says something else than the rules in force, for it could not be read again.
    is_out_of_date: bool,
    /// What the service manager was told that it is at work on, once it is.
    told: Option<String>,
    totals_every: Option<Duration>,
    next_totals: Instant,
    metrics: Option<Metrics>,
}

impl Service {
    /// Tells of itself from now on in all ways; it is at work a while later.
    pub fn begin(telling: &Telling, stats: Stats, announced: Announced) -> Result<Self> {
        let is_out_of_date = announced.is_out_of_date.get();
        let shared = announced.serve();
        let metrics = telling.metrics.as_ref();
        let metrics = metrics.map(|endpoint| Metrics::serve(endpoint, Arc::clone(&shared)));
        let totals_every = telling.totals_every.map(|s| Duration::from_secs(s.into()));
        Ok(Self {
            shared,
            stats,
            stats_fail: None,
            rules_fail: None,
            is_out_of_date,
            told: None,
            totals_every,
            next_totals: Instant::now() + totals_every.unwrap_or_default(),
            metrics: metrics.transpose()?,
        })
    }

    /// The programs are at work, on what is described so.
    pub fn has_begun(
        &mut self,
        bundling: String,
        attachment: &Attachment,
        selection: &Selection,
    ) -> Result<()> {
        self.shared.bundles(bundling);
        self.shared.notes(Vec::new());
        self.shared.has_begun(attachment.readings()?);
        self.keep_up(attachment, selection);
        self.metrics.as_mut().map_or(Ok(()), Metrics::show)?;
        self.is_at_work();
        Ok(())
    }

    fn is_at_work(&mut self) {
        let words = self.shared.words();
        manager::is_at_work(&words);
        self.told = Some(words);
    }

    /// Writes the file of `--stats` now.
    pub fn write_stats(&mut self, attachment: &Attachment) {
        self.stats.now(attachment);
    }

    /// Remembers what is bundled by other rules now, or why the old ones hold.
    pub fn reloaded(&mut self, bundling: Result<&str, &str>) {
        self.is_out_of_date = bundling.is_err();
        match bundling {
            Ok(bundling) => self.shared.bundles(bundling.to_owned()),
            Err(why) => self.shared.failed(why),
        }
        self.is_at_work();
    }

    /// Remembers what keeps the rules from following cgroups now, if anything does.
    pub fn rules_fail(&mut self, why: Option<&str>) {
        remember(&mut self.rules_fail, why, &self.shared);
    }

    /// Remembers what it does not cover now, and why.
    pub fn notes(&self, notes: Vec<String>) {
        self.shared.notes(notes);
    }

    /// The last account.
    pub fn end(&self, attachment: &Attachment) -> Result<()> {
        self.stats.write(&attachment.totals()?)
    }
}

/// Remembers what fails now, if anything does, and that it is what failed last.
fn remember(failing: &mut Option<String>, why: Option<&str>, shared: &Shared) {
    if failing.as_deref() != why {
        *failing = why.map(str::to_owned);
        failing.iter().for_each(|it| shared.failed(it));
    }
}

impl Watcher for Service {
    /// Says what has changed, and remembers it.
    fn tell(&mut self, change: &Change) {
        say_line!("pillion: {change}");
        self.shared.tell(change);
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        self.stats.keep_up(attachment);
        remember(&mut self.stats_fail, self.stats.failing(), &self.shared);
        let failing = selection.failing().map(str::to_owned);
        let failing = failing.chain(self.rules_fail.clone());
        let failing = failing.chain(self.stats_fail.clone());
        let out_of_date = self.is_out_of_date.then(|| OUT_OF_DATE.to_owned());
        let failing = failing.chain(out_of_date);
        self.shared.follow(attachment, failing.collect());
        manager::is_alive();
        let words = self.shared.words();
        if self.told.as_ref().is_some_and(|told| *told != words) {
            manager::bundles(&words);
            self.told = Some(words);
        }
        if let Some(every) = self.totals_every
            && Instant::now() >= self.next_totals
        {
            self.next_totals += every;
            if let Ok(totals) = attachment.totals() {
                say_line!("pillion: so far: {}", summary(&totals));
            }
        }
    }
}

// A pillion that `status` finds before it is at work.

/// One that waits for where it is to bundle. It has no thread yet: what it starts beside itself by
/// then is to be a process of one thread.
pub struct Announced {
    shared: Arc<Shared>,
    listener: Option<Listener>,
    /// Whether the file says something else than the rules that hold, for it could not be read again.
    is_out_of_date: Cell<bool>,
}

impl Announced {
    /// Can be found from now on; `bundling` is what it is to bundle.
    pub fn begin(bundling: String) -> Self {
        let listener = Listener::begin();
        if let Err(error) = &listener {
            say_line!("pillion: unknown to `pillion status`: {error}");
        }
        Self {
            shared: Arc::new(Shared::new(bundling)),
            listener: listener.ok(),
            is_out_of_date: Cell::new(false),
        }
    }

    /// Its file was read again, or could not be.
    pub fn reloaded(&self, is_read: bool) {
        self.is_out_of_date.set(!is_read);
    }

    /// It is not at work yet, and this is why.
    pub fn waits(&self, why: &str) {
        self.shared.notes(vec![format!("waits: {why}")]);
        manager::waits(why);
    }

    /// What becomes readable when somebody asks.
    pub fn asked(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers who has asked.
    pub fn answer(&self) {
        if let Some(listener) = &self.listener {
            listener.answer(&self.shared);
        }
    }

    /// Answers in a thread of its own from now on.
    fn serve(self) -> Arc<Shared> {
        if let Some(listener) = self.listener {
            listener.serve(Arc::clone(&self.shared));
        }
        self.shared
    }
}
