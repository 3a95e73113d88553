use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use clap_mangen::roff::{Roff, bold, roman};
use pillion_cli::VERSION;
use pillion_cli::print::print;
use pillion_cli::settings::policy::{example, sections};

/// Commands for the rules file
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a rules file with every key as a comment
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

/// Formats the manual page of the rules file.
pub fn manual_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["pillion.toml", "5", "", VERSION]);
    page.control("SH", ["NAME"]);
    page.text([roman("pillion.toml - rules of pillion attach --config")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "The file selects connections and sets how they are bundled. It is TOML. SIGHUP reloads it, \
         except log-level, log-totals, metrics and stats, which need a restart. pillion attach --config \
         FILE --check-config reports every mistake with its position.",
    )]);
    for section in sections() {
        let header = match section.header {
            "" => "head of the file",
            header => header,
        };
        page.control("SH", [header]);
        page.text([roman(section.description)]);
        for key in section.keys {
            page.control("TP", []);
            page.text([bold(key.name), roman(format!(" = {}", key.value))]);
            page.text([roman(format!("{}.", key.description))]);
            for value in key.values {
                page.control("br", []);
                page.text([roman(value)]);
            }
        }
    }
    page.control("SH", ["FILES"]);
    page.text([roman(
        "/etc/pillion/pillion.toml is the file of the service.",
    )]);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("pillion-attach"),
        roman("(1), "),
        bold("pillion-status"),
        roman("(1)"),
    ]);
    page.render()
}
