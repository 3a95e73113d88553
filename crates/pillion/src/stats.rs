//! Totals in words, and the file of `--stats`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{Attachment, Outcome, Totals};
use pillion_cli::exit::one_line;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::say_line;
use pillion_stats::report::number::counted;

use crate::process::refuse_if_setuid;

// Totals in words.

/// One line: segments, bundled, redundant bytes and their share, losses, the time
/// that their repair saved, reactions.
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
        seconds(counters.saved_us),
        counted(counters.reactions, "reaction"),
    );
    let retransmissions = counters.of(Outcome::RetransmissionBundled);
    if retransmissions > 0 {
        line += &format!(", {} bundled", counted(retransmissions, "retransmission"));
    }
    if let Some(decision) = totals.decision {
        line += &format!(
            ", {} spared (last time {} of {} bytes/s allowed)",
            counters.reactions_spared, decision.rate_sent, decision.rate_allowed
        );
    }
    if totals.connections_refused > 0 {
        line += &format!(
            "; {} not bundled for want of kernel memory",
            counted(totals.connections_refused, "connection")
        );
    }
    if totals.over_limit > 0 {
        line += &format!(
            "; {} more connections than --max-connections allows",
            counted(totals.over_limit, "time")
        );
    }
    line + &companions(totals)
}

/// Whole tenths, rounded down: an estimate that is to be never too high.
fn seconds(us: u64) -> String {
    let tenths = us / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Why the others were not, most frequent first; empty if all were.
pub fn reasons(totals: &Totals) -> String {
    let reasons = totals.counters.not_bundled().into_iter();
    let words: Vec<_> = reasons
        .map(|(outcome, count)| format!("{} {count}", outcome.label()))
        .collect();
    words.join(", ")
}

/// How often each was set, and refused; empty if none was asked for.
fn companions(totals: &Totals) -> String {
    let parts = [
        ("set", &totals.companions_set),
        ("refused by the kernel", &totals.companions_refused),
    ];
    let parts = parts.iter().filter(|(_, counts)| !counts.is_empty());
    parts
        .map(|(what, counts)| {
            let counts = counts.iter();
            let words: Vec<_> = counts
                .map(|(companion, count)| format!("{} {count}", companion.label()))
                .collect();
            format!("; companions {what}: {}", words.join(", "))
        })
        .collect()
}

// The file of `--stats`: whole at any moment, because each version replaces the one before.

/// How old the file may be while pillion runs.
const EVERY: Duration = Duration::from_secs(10);

/// Where the account goes, if that is wanted.
pub struct Stats {
    file: Option<OutputFile>,
    next: Instant,
    /// Why it cannot be written, if that is so.
    failing: Option<String>,
}

impl Stats {
    /// To the file with this name, if there is one. It is known then that it can be written; nothing
    /// is written yet.
    pub fn to(path: Option<PathBuf>) -> Result<Self> {
        let file = path.map(|path| {
            refuse_if_setuid("--stats")?;
            OutputFile::to("--stats", &path)
        });
        Ok(Self {
            file: file.transpose()?,
            next: Instant::now(),
            failing: None,
        })
    }

    /// Writes it if it was last written long ago.
    pub fn keep_up(&mut self, attachment: &Attachment) {
        if self.file.is_some() && Instant::now() >= self.next {
            self.now(attachment);
        }
    }

    /// Writes it; what fails is said once, until it succeeds.
    pub fn now(&mut self, attachment: &Attachment) {
        self.next = Instant::now() + EVERY;
        let totals = attachment.totals().map_err(anyhow::Error::from);
        let written = totals.and_then(|totals| self.write(&totals));
        let failing = written.err().map(|error| one_line(&error));
        if let (Some(why), None) = (&failing, &self.failing) {
            say_line!("pillion: {why}; trying again");
        }
        self.failing = failing;
    }

    /// Why it cannot be written, if that is so.
    pub fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

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
    fn one_is_no_plural() {
        let mut totals = Totals {
            connections: 1,
            ..Totals::default()
        };
        totals.counters.hidden_losses = 1;
        totals.counters.reactions = 2;
        let told = summary(&totals);
        assert!(told.starts_with("1 connection, 0 segments, "), "{told}");
        assert!(told.contains(" 1 hidden loss, "), "{told}");
        assert!(told.ends_with(" 2 reactions"), "{told}");
    }

    #[test]
    fn seconds_are_rounded_down() {
        assert_eq!(seconds(99_999), "0.0");
        assert_eq!(seconds(12_399_999), "12.3");
    }
}
