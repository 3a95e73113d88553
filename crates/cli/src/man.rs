use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use clap_mangen::roff::{Roff, bold, roman};
use pillion_settings::policy::{example, sections};

use crate::print::print;
use crate::{Cli, VERSION};

/// Write the manual pages into a folder, or completions or a file of rules to standard output
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    /// The folder for the manual pages; made if it is not there
    #[arg(required_unless_present_any = ["completions", "config"])]
    folder: Option<PathBuf>,

    /// Write completions for this shell instead
    #[arg(long, value_name = "SHELL", conflicts_with = "folder")]
    completions: Option<Shell>,

    /// Write a file of rules instead, with every key as a comment
    #[arg(long, conflicts_with_all = ["folder", "completions"])]
    config: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if let Some(shell) = self.completions {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pillion", &mut script);
            print(&String::from_utf8_lossy(&script))?;
        }
        if self.config {
            print(&example())?;
        }
        if let Some(folder) = self.folder {
            fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
                .and_then(|()| fs::write(folder.join("pillion.toml.5"), of_the_file()))
                .with_context(|| format!("write manual pages to {}", folder.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The page of the file of rules.
fn of_the_file() -> String {
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
