use std::process::ExitCode;

use anyhow::Result;
use pillion_bundler::{Flow, Verdict, list_flows};
use pillion_report::{Column, Table, number};

use crate::companions::words;

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
            println!("{}", serde_json::to_string_pretty(&flows)?);
        } else if flows.is_empty() {
            println!("no connection is being bundled");
        } else {
            print!("{}", table(&flows).to_text(false));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(flows: &[Flow]) -> Table {
    let mut table = Table::new(
        "",
        [
            Column::left("local"),
            Column::left("peer"),
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
            flow.in_flight.to_string(),
            number::millis(flow.rtt_min_us.map(|us| f64::from(us) / 1e3)),
            number::count(counters.segments()),
            number::count(counters.of(Verdict::Bundled)),
            number::percent(counters.redundant_share()),
            number::millis(counters.saved_us as f64 / 1e3),
            flow.last
                .map_or_else(String::new, |last| last.label().to_owned()),
            companions(flow),
        ]);
    }
    table
}

/// What it has, and what the kernel refused.
fn companions(flow: &Flow) -> String {
    let refused = flow.companions_refused.iter();
    let refused = refused.map(|companion| format!("({} refused)", companion.label()));
    let has = Some(words(&flow.companions)).filter(|words| !words.is_empty());
    has.into_iter().chain(refused).collect::<Vec<_>>().join(" ")
}
