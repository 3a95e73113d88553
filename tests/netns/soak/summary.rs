//! Summary of the soak in one table.

use std::collections::BTreeMap;
use std::time::Duration;

use pillion_lab::path::{DirectionStats, PathStats, Volume};
use pillion_stats::report::{Column, Table, number};

use super::events::ConnectionLedger;
use super::instance::{InstanceResult, Termination};
use super::memory::{MEASURES, Samples};

/// Sums over all pillions.
#[derive(Debug, Default)]
pub struct Summary {
    by_termination: BTreeMap<Termination, u64>,
    pub attachments: u64,
    reloads: u64,
    /// Connections of pillions that were not killed.
    pub connections: u64,
    pub bundles: u64,
    hidden_losses: u64,
    reactions: u64,
    suppressed: u64,
}

impl Summary {
    pub fn add(&mut self, outcome: &InstanceResult) {
        *self.by_termination.entry(outcome.termination).or_default() += 1;
        self.attachments += u64::from(outcome.attached);
        self.reloads += outcome.reloads;
        let Some(stats) = &outcome.stats else {
            return;
        };
        let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        self.connections += count(&stats["connections"]);
        self.bundles += count(&stats["outcomes"]["bundled"]);
        self.hidden_losses += count(&stats["hidden_losses"]);
        self.reactions += count(&stats["reactions"]);
        self.suppressed += count(&stats["reactions_suppressed"]);
    }

    pub fn ended(&self) -> u64 {
        self.by_termination.values().sum()
    }

    pub fn line(&self, ledger: &ConnectionLedger, time: Duration) -> String {
        format!(
            "{:>4.1} min: {} connections, {} under way, {} verified; {} pillions ended, {} bundles",
            time.as_secs_f64() / 60.0,
            number::count(ledger.opened_total()),
            ledger.open_connections(),
            number::bytes(ledger.verified as f64),
            self.ended(),
            number::count(self.bundles),
        )
    }

    /// Builds the final table: counts, and memory after a tenth, half and all of the time.
    pub fn table(
        &self,
        ledger: &ConnectionLedger,
        path: &PathStats,
        samples: &Samples,
        total: usize,
    ) -> Table {
        const SHARES: [f64; 3] = [0.1, 0.5, 1.0];
        let share_columns = SHARES.map(|share| Column::right(number::percent(share)));
        let columns = [Column::left("after")].into_iter().chain(share_columns);
        let mut table = Table::new("Soak summary", columns);
        let mut count = |name: &str, count: u64| {
            table.row([name, "", "", &number::count(count)]);
        };
        count("connections", ledger.opened_total());
        for (kind, opened) in &ledger.opened {
            count(&format!("  {}", kind.name()), *opened);
        }
        count("bytes verified", ledger.verified);
        let both = |of: fn(&DirectionStats) -> Volume| {
            of(&path.forward).packets + of(&path.backward).packets
        };
        count("packets", both(|it| it.received));
        count("packets lost", both(|it| it.lost));
        count("pillions", self.ended());
        for (termination, ended) in &self.by_termination {
            count(&format!("  {}", termination.name()), *ended);
        }
        count("attachments", self.attachments);
        count("reloads", self.reloads);
        table.section("pillions that were not killed");
        for (name, counted) in [
            ("connections adopted", self.connections),
            ("bundles", self.bundles),
            ("hidden losses", self.hidden_losses),
            ("reactions", self.reactions),
            ("reactions suppressed", self.suppressed),
        ] {
            table.row([name, "", "", &number::count(counted)]);
        }
        table.section("long-lived pillion, and kernel memory of all");
        for (name, measure, _) in MEASURES {
            let median_at = |share| samples.median_at(share, total, measure);
            let values =
                SHARES.map(|share| median_at(share).map_or_else(String::new, number::count));
            table.row([&[name.to_owned()], &values[..]].concat());
        }
        table
    }
}
