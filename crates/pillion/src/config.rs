use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use clap_mangen::roff::{Roff, bold, roman};
use pillion_cli::VERSION;
use pillion_cli::print::print;
use pillion_cli::settings::policy::{example, sections};

/// The file of rules
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a file of rules that has every key as a comment
    Example,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Example => print(&example())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The page of the file of rules.
pub fn manual_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["pillion.toml", "5", "", VERSION]);
    page.control("SH", ["NAME"]);
    page.text([roman("pillion.toml - rules of pillion attach --config")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "The file chooses the connections that are bundled, and says how. It is TOML, and is read again \
         on SIGHUP, but for metrics, stats and totals-every. Every mistake in it is told with its \
         place by pillion attach --config FILE --check-config.",
    )]);
    for section in sections() {
        let header = match section.header {
            "" => "head of the file",
            header => header,
        };
        page.control("SH", [header]);
        page.text([roman(section.meaning)]);
        for key in section.keys {
            page.control("TP", []);
            page.text([bold(key.name), roman(format!(" = {}", key.value))]);
            page.text([roman(format!("{}.", key.meaning))]);
            for value in key.values {
                page.control("br", []);
                page.text([roman(value)]);
            }
        }
    }
    page.control("SH", ["FILES"]);
    page.text([roman("/etc/pillion/pillion.toml is that of the service.")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("pillion-attach"),
        roman("(1), "),
        bold("pillion-status"),
        roman("(1)"),
    ]);
    page.render()
}
