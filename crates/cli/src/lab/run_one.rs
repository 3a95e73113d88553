use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_lab::run::{How, perform};

use crate::VERSION;
use crate::experiment;
use crate::stop;
use pillion_settings::BadInput;

/// Make one run on this host's kernel, and write its folder
#[derive(clap::Args)]
pub struct Args {
    /// The run, as `pillion lab plan --json` gives it: an experiment of one run
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,

    /// The folder, which does not exist yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Write down that this engine made it
    #[arg(long, value_name = "NAME", default_value = "live", value_parser = ["live", "virtual"])]
    engine: String,

    /// Write down what identifies the lab kernel
    #[arg(long, value_name = "HASH")]
    lab_kernel: Option<String>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let [planned] = &experiment.runs[..] else {
            let count = experiment.runs.len();
            let name = self.file.display();
            let why = format!("{name}: {count} runs; `pillion lab run` makes more than one");
            return Err(BadInput(why).into());
        };
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("read {}", self.file.display()))?;
        let summary = perform(
            &planned.run,
            &text,
            &self.folder,
            &How {
                version: match self.engine.as_str() {
                    "live" => VERSION,
                    // It is compared, and builds of two commits may do the same; host.json has
                    // the commit.
                    _ => env!("CARGO_PKG_VERSION"),
                },
                engine: &self.engine,
                lab_kernel: self.lab_kernel,
                stop: stop::on_signal()?,
                progress: &|_| {},
            },
        )?;
        for doubt in &summary.doubts {
            eprintln!("pillion: {doubt}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
