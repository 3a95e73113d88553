//! `pillion top`: the connections that are bundled, as they are from moment to moment.

mod batch;
mod draw;
mod history;
mod live;
mod page;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_bpf::FlowLister;
use pillion_bpf::host::Owners;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_interval;

use crate::flows::{Connection, columns, owned, owners};
use view::{Order, View};

/// Watch the connections that running pillions bundle: what they lose, save and cost
///
/// Keys: arrows choose a connection and the column to sort by, `r` reverses, `/` filters, Enter shows
/// one connection, `?` helps, `q` ends. Where there is no terminal, --batch prints rounds as text.
#[derive(clap::Args)]
pub struct Args {
    /// Milliseconds between two rounds, 1 to 86400000
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = parse_interval)]
    interval: Duration,

    /// Sort by this column, as in `saved` or `hidden-losses`; numbers fall, words rise
    #[arg(long, value_name = "COLUMN", default_value = "saved", value_parser = parse_column)]
    sort: usize,

    /// Only connections of which some column has this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Print each round as text, for scripts and logs
    #[arg(long)]
    batch: bool,

    /// End after so many rounds
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,

    /// Print a line of JSON for each round: the connections as `flows --json` has them
    #[arg(long, requires = "batch")]
    json: bool,
}

/// The place of a column by its heading, with `-` for blanks.
fn parse_column(text: &str) -> Result<usize, String> {
    let names: Vec<_> = columns()
        .iter()
        .map(|it| it.column.header.to_lowercase().replace(' ', "-"))
        .collect();
    let place = names.iter().position(|name| *name == text.to_lowercase());
    place.ok_or_else(|| format!("no column is called so; there are {}", names.join(", ")))
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if !self.batch && !has_terminal {
            let why = "`pillion top` needs a terminal; --batch prints rounds as text without one";
            return Err(BadInput(why.to_owned()).into());
        }
        let source = Source {
            lister: FlowLister::load()?,
            owners: owners(),
        };
        let view = View::new(Order::by(self.sort), self.filter);
        match self.batch {
            true => batch::run(source, view, self.interval, self.rounds, self.json)?,
            false => live::run(source, view, self.interval)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the connections come from.
struct Source {
    lister: FlowLister,
    owners: Owners,
}

impl Source {
    fn read(&mut self) -> Result<Vec<Connection>> {
        Ok(owned(self.lister.list()?, &mut self.owners))
    }
}
