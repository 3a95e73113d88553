//! Summary of the soak in one table.

use std::collections::BTreeMap;
use std::time::Duration;

use pillion_lab::path::{Counts, Ledger, Volume};
use pillion_stats::report::{Column, Table, number};

use super::books::Books;
use super::flat::{MEASURES, Samples};
use super::ride::End;
use super::rider::Outcome;

/// Sums over all pillions.
#[derive(Debug, Default)]
pub struct Tally {
    ends: BTreeMap<End, u64>,
    pub attachments: u64,
    reloads: u64,
    /// Connections of pillions that were not killed.
    pub connections: u64,
    pub bundles: u64,
    hidden: u64,
    reactions: u64,
    spared: u64,
}

impl Tally {
    pub fn add(&mut self, outcome: &Outcome) {
        *self.ends.entry(outcome.end).or_default() += 1;
        self.attachments += u64::from(outcome.attached);
        self.reloads += outcome.reloads;
        let Some(stats) = &outcome.stats else {
            return;
        };
        let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        self.connections += count(&stats["connections"]);
        self.bundles += count(&stats["outcomes"]["bundled"]);
        self.hidden += count(&stats["hidden_losses"]);
        self.reactions += count(&stats["reactions"]);
        self.spared += count(&stats["reactions_spared"]);
    }

    pub fn ended(&self) -> u64 {
        self.ends.values().sum()
    }

    pub fn line(&self, books: &Books, time: Duration) -> String {
        format!(
            "{:>4.1} min: {} connections, {} under way, {} verified; {} pillions ended, {} bundles",
            time.as_secs_f64() / 60.0,
            number::count(books.all()),
            books.under_way(),
            number::bytes(books.verified as f64),
            self.ended(),
            number::count(self.bundles),
        )
    }

    /// Builds the final table: counts, and memory after a tenth, half and all of the time.
    pub fn table(&self, books: &Books, path: &Ledger, samples: &Samples, of_all: usize) -> Table {
        const MOMENTS: [f64; 3] = [0.1, 0.5, 1.0];
        let moments = MOMENTS.map(|share| Column::right(number::percent(share)));
        let columns = [Column::left("after")].into_iter().chain(moments);
        let mut table = Table::new("Soak summary", columns);
        let mut count = |name: &str, count: u64| {
            table.row([name, "", "", &number::count(count)]);
        };
        count("connections", books.all());
        for (kind, opened) in &books.opened {
            count(&format!("  {}", kind.name()), *opened);
        }
        count("bytes verified", books.verified);
        let both =
            |of: fn(&Counts) -> Volume| of(&path.forward).packets + of(&path.backward).packets;
        count("packets", both(|it| it.received));
        count("packets lost", both(|it| it.lost));
        count("pillions", self.ended());
        for (end, ended) in &self.ends {
            count(&format!("  {}", end.name()), *ended);
        }
        count("attachments", self.attachments);
        count("reloads", self.reloads);
        table.section("pillions that were not killed");
        for (name, counted) in [
            ("connections adopted", self.connections),
            ("bundles", self.bundles),
            ("hidden losses", self.hidden),
            ("reactions", self.reactions),
            ("reactions suppressed", self.spared),
        ] {
            table.row([name, "", "", &number::count(counted)]);
        }
        table.section("long-lived pillion, and kernel memory of all");
        for (name, measure, _) in MEASURES {
            let at = |share| samples.at(share, of_all, measure);
            let values = MOMENTS.map(|share| at(share).map_or_else(String::new, number::count));
            table.row([&[name.to_owned()], &values[..]].concat());
        }
        table
    }
}
