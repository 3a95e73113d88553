//! Summary of totals, and the file of `--stats`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{Attachment, Outcome, Totals};
use pillion_cli::exit::one_line;
use pillion_cli::output_file::OutputFile;
use pillion_stats::report::number::counted;

use crate::process::refuse_if_setuid;

// Summary.

/// Summarizes totals in one line: connections, segments, bundled, redundant bytes and their share,
/// hidden losses, time saved, reactions.
pub fn summary(totals: &Totals) -> String {
    let counters = &totals.counters;
    let mut line = format!(
        "{}, {}, {} bundled, {} ({:.1} %), {}, an estimated {} s saved, {}",
        counted(totals.connections, "connection"),
        counted(counters.segments(), "segment"),
        counters.of(Outcome::Bundled),
        counted(counters.redundant_bytes, "redundant byte"),
        counters.bundled_share() * 100.0,
        counted(counters.hidden_losses, "hidden loss"),
        seconds(counters.time_saved_us),
        counted(counters.reactions, "reaction"),
    );
    let retransmissions = counters.of(Outcome::RetransmissionBundled);
    if retransmissions > 0 {
        line += &format!(", {} bundled", counted(retransmissions, "retransmission"));
    }
    if let Some(tfrc_decision) = totals.tfrc_decision {
        line += &format!(
            ", {} suppressed (last decision: {} of {} bytes/s allowed)",
            counters.reactions_suppressed,
            tfrc_decision.tfrc_sent_bytes_per_s,
            tfrc_decision.tfrc_allowed_bytes_per_s
        );
    }
    if totals.connections_failed > 0 {
        line += &format!(
            "; {} not bundled for lack of kernel memory",
            counted(totals.connections_failed, "connection")
        );
    }
    if totals.connection_limit_hits > 0 {
        line += &format!(
            "; {} without a slot (--max-connections)",
            counted(totals.connection_limit_hits, "connection")
        );
    }
    line + &tcp_options(totals)
}

/// Formats microseconds as seconds with one decimal, rounded down.
fn seconds(us: u64) -> String {
    let tenths = us / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Logs the totals, and why segments were not bundled, most frequent first.
pub fn log_totals(totals: &Totals) {
    log::info!("{}", summary(totals));
    let reasons = totals.counters.not_bundled().into_iter();
    let words: Vec<_> = reasons
        .map(|(outcome, count)| format!("{} {count}", outcome.label()))
        .collect();
    if !words.is_empty() {
        log::info!("not bundled: {}", words.join(", "));
    }
}

/// Lists how often each TCP option was set and refused; empty if none was requested.
fn tcp_options(totals: &Totals) -> String {
    let parts = [
        ("set", &totals.tcp_options_set),
        ("refused by the kernel", &totals.tcp_options_refused),
    ];
    let parts = parts.iter().filter(|(_, counts)| !counts.is_empty());
    parts
        .map(|(verb, counts)| {
            let counts = counts.iter();
            let words: Vec<_> = counts
                .map(|(option, count)| format!("{} {count}", option.label()))
                .collect();
            format!("; TCP options {verb}: {}", words.join(", "))
        })
        .collect()
}

// The file of `--stats`, complete at any moment because it is replaced atomically.

/// Interval at which the file is replaced.
const INTERVAL: Duration = Duration::from_secs(10);

/// The file of `--stats`, if requested.
pub struct Stats {
    file: Option<OutputFile>,
    next: Instant,
    /// Why it cannot be written, if so.
    failure: Option<String>,
}

impl Stats {
    /// Tests that the file can be written, without writing it.
    pub fn new(path: Option<PathBuf>) -> Result<Self> {
        let file = path.map(|path| {
            refuse_if_setuid("--stats")?;
            OutputFile::to("--stats", &path)
        });
        Ok(Self {
            file: file.transpose()?,
            next: Instant::now(),
            failure: None,
        })
    }

    /// Writes the file if the interval has passed.
    pub fn write_if_due(&mut self, attachment: &Attachment) {
        if self.file.is_some() && Instant::now() >= self.next {
            self.write_now(attachment);
        }
    }

    /// Writes the file. A failure is logged once, until it succeeds.
    pub fn write_now(&mut self, attachment: &Attachment) {
        self.next = Instant::now() + INTERVAL;
        let totals = attachment.totals().map_err(anyhow::Error::from);
        let written = totals.and_then(|totals| self.write(&totals));
        let failure = written.err().map(|error| one_line(&error));
        if let (Some(why), None) = (&failure, &self.failure) {
            log::warn!("{why}; retrying");
        }
        self.failure = failure;
    }

    /// Returns why it cannot be written, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes these totals.
    pub fn write(&self, totals: &Totals) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.write_now(&(serde_json::to_string_pretty(totals)? + "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_uses_singular_for_one() {
        let mut totals = Totals {
            connections: 1,
            ..Totals::default()
        };
        totals.counters.hidden_losses = 1;
        totals.counters.reactions = 2;
        let line = summary(&totals);
        assert!(line.starts_with("1 connection, 0 segments, "), "{line}");
        assert!(line.contains(" 1 hidden loss, "), "{line}");
        assert!(line.ends_with(" 2 reactions"), "{line}");
    }

    #[test]
    fn seconds_are_rounded_down() {
        assert_eq!(seconds(99_999), "0.0");
        assert_eq!(seconds(12_399_999), "12.3");
    }
}
