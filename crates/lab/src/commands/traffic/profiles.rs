use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print, print_json};
use pillion_lab::traffic::{Profile, Time, profiles};

/// List the applications whose traffic `send --profile NAME` generates
///
/// Sizes are bytes of payload, times milliseconds between packets, both as the papers print them.
#[derive(clap::Args)]
pub struct Args {
    /// Print the profiles as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let profiles = profiles();
        match self.json {
            true => print_json(&profiles)?,
            false => print(&table(&profiles))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(profiles: &[Profile]) -> String {
    let mut table = format!(
        "{:<25} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>6} {:>5} {:>5}  source\n",
        "name", "min B", "avg", "max", "minms", "avg", "med", "max", "1%", "99%"
    );
    for profile in profiles {
        let (size, iat) = (profile.size, profile.iat);
        table += &format!(
            "{:<25} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>6} {:>5} {:>5}  {}\n",
            profile.name,
            size.min,
            size.avg,
            size.max,
            text(iat.min),
            iat.avg,
            text(iat.med),
            iat.max,
            text(iat.p1),
            text(iat.p99),
            profile.sources,
        );
    }
    table
}

fn text(time: Time) -> String {
    match time {
        Time::Ms(ms) => ms.to_string(),
        Time::Below(_) => "<1".to_owned(),
    }
}
