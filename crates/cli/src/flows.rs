use std::process::ExitCode;

use anyhow::Result;
use pillion_bundler::{Flow, Outcome, WantedBy, list_flows};
use pillion_report::{Column, Table, number};

use crate::companions::words;
use crate::print::{print, print_json, print_line};

/// List the connections that running pillions bundle, and why a segment was not
#[derive(clap::Args)]
pub struct Args {
    /// Print the connections as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let flows = list_flows()?;
        if self.json {
            print_json(&flows)?;
        } else if flows.is_empty() {
            print_line!("no connection is being bundled")?;
        } else {
            print(&table(&flows).to_text(false))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The rules or the application; the latter may also have switched it off.
fn wanted_by(flow: &Flow) -> String {
    match (flow.off, flow.wanted_by, flow.rule) {
        (true, ..) => "nobody: switched off".to_owned(),
        (false, WantedBy::Application, _) => "its application".to_owned(),
        (false, WantedBy::Rule, Some(rule)) => format!("rule {rule}"),
        (false, WantedBy::Rule, None) => "default".to_owned(),
    }
}

fn table(flows: &[Flow]) -> Table {
    let mut table = Table::new(
        "",
        [
            Column::left("local"),
            Column::left("peer"),
            Column::left("wanted by"),
            Column::right("in flight"),
            Column::right("min RTT").unit("ms"),
            Column::right("segments"),
            Column::right("bundled"),
            Column::right("redundant"),
            Column::right("saved").unit("ms"),
            Column::left("last segment"),
            Column::left("companions"),
        ],
    );
    for flow in flows {
        let counters = &flow.counters;
        table.row([
            flow.local.to_string(),
            flow.peer.to_string(),
            wanted_by(flow),
            flow.in_flight.to_string(),
            number::millis(flow.rtt_min_us.map(|us| f64::from(us) / 1e3)),
            number::count(counters.segments()),
            number::count(counters.of(Outcome::Bundled)),
            number::percent(counters.redundant_share()),
            number::millis(counters.saved_us as f64 / 1e3),
            last(flow),
            companions(flow),
        ]);
    }
    table
}

/// What became of its last segment, and how large bundles get while the path takes no larger ones.
fn last(flow: &Flow) -> String {
    let last = flow.last.map(|last| last.label().to_owned());
    let limit = flow.path_size.map(|bytes| format!("at most {bytes} bytes"));
    last.into_iter().chain(limit).collect::<Vec<_>>().join(", ")
}

/// What it has, and what the kernel refused.
fn companions(flow: &Flow) -> String {
    let refused = flow.companions_refused.iter();
    let refused = refused.map(|companion| format!("({} refused)", companion.label()));
    let has = Some(words(&flow.companions)).filter(|words| !words.is_empty());
    has.into_iter().chain(refused).collect::<Vec<_>>().join(" ")
}
