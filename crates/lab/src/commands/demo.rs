use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::VERSION;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print_json, print_line};
use pillion_cli::stop;
use pillion_lab::campaign::{Campaign, make_parallel_live};
use pillion_lab::settings::experiment;
use pillion_lab::{Demo, DemoSettings, Error, Namespace, demo_page, demo_table};

use super::progress_display::ProgressDisplay;

/// Compare thin streams with and without bundling on a lossy path of this host
///
/// Three groups of real TCP streams run at the same time, each on its own path with the same delay
/// and loss: plain, bundled as published (LCN 2015), and bundled by pillion. Options under
/// "Bundling" and "Experimental" apply to the third group only. The groups are the runs of
/// experiments/demo.toml in the live engine. Prints the comparison and writes a report.
#[derive(clap::Args)]
pub struct Args {
    /// Write the report to FILE
    #[arg(long, value_name = "FILE", default_value = "pillion-demo.html")]
    html: PathBuf,

    /// Print the numbers as JSON instead of the table
    #[arg(long)]
    json: bool,

    // Clap gives the headings of these options to all options that follow, so these are last.
    #[command(flatten)]
    demo: experiment::DemoOptions,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let runs = self.demo.runs()?;
        // Before anything is written: the following steps need the same privilege.
        Namespace::create().map_err(|source| Error::Namespace {
            name: "sender".to_owned(),
            source,
        })?;
        let report = OutputFile::page("--html", &self.html)?;
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        let stop = stop::on_signal()?;
        let progress_display = ProgressDisplay::new(&runs);
        let made = make_parallel_live(
            &runs,
            &Campaign {
                version: VERSION,
                folder: folder.path(),
                progress: &progress_display,
                stop: &stop,
                after: &|_| {},
            },
        );
        progress_display.finish();
        let [_, _, bundled] = &runs;
        let demo = Demo::read(&bundled.run, &made?)?;
        report.write(&demo_page(&demo).to_html())?;
        if self.json {
            print_json(&demo)?;
            return Ok(ExitCode::SUCCESS);
        }
        print_line!("{}", DemoSettings::of(&demo.run))?;
        print_line!("{}", demo_table(&demo).to_text())?;
        print_line!("report: {}", report.name().display())?;
        Ok(ExitCode::SUCCESS)
    }
}
