use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::VERSION;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print_json, print_line};
use pillion_cli::stop;
use pillion_lab::campaign::{Campaign, make_both_live};
use pillion_lab::settings::experiment;
use pillion_lab::{Demo, Error, Namespace, Setting, demo_page, demo_table};

use super::board::Board;

/// Compare thin streams with and without bundling, on a lossy path made on this host
///
/// Two groups of real TCP streams run side by side, each on a path of its own with the same
/// delay and loss: one plain, one bundled. They are the runs of experiments/demo.toml, in the live
/// engine. Prints the comparison and writes a report.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    demo: experiment::Demo,

    /// Where to write the report
    #[arg(long, value_name = "FILE", default_value = "pillion-demo.html")]
    report: PathBuf,

    /// Print the numbers as JSON instead of the table
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let runs = self.demo.runs()?;
        // Before anything is written: all that follows takes the same privilege.
        Namespace::create().map_err(|source| Error::Namespace {
            name: "sender".to_owned(),
            source,
        })?;
        let report = OutputFile::page("--report", &self.report)?;
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        let stop = stop::on_signal()?;
        let board = Board::new(&runs);
        let made = make_both_live(
            &runs,
            &Campaign {
                version: VERSION,
                folder: folder.path(),
                progress: &board,
                stop: &stop,
                after: &|_| {},
            },
        );
        board.finish();
        let [plain, pillion] = made?;
        let [_, bundled] = &runs;
        let demo = Demo::read(&bundled.run, &plain, &pillion)?;
        report.write(&demo_page(&demo).to_html())?;
        if self.json {
            print_json(&demo)?;
            return Ok(ExitCode::SUCCESS);
        }
        print_line!("{}", Setting::of(&demo.run))?;
        print_line!("{}", demo_table(&demo).to_text())?;
        print_line!("report: {}", report.name().display())?;
        Ok(ExitCode::SUCCESS)
    }
}
