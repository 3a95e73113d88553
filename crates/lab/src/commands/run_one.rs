use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::VERSION;
use pillion_cli::print::say_line;
use pillion_cli::stop;
use pillion_lab::run::{How, perform};
use pillion_lab::settings::experiment::{Engine, load_run};

/// Make one run on this host's kernel, and write its folder
#[derive(clap::Args)]
pub struct Args {
    /// The run, as `pillion-lab plan --json` gives it: an experiment of one run
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,

    /// The folder, which does not exist yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Write down that this engine made it
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Engine::Live)]
    engine: Engine,

    /// Write down what identifies the lab kernel
    #[arg(long, value_name = "HASH")]
    lab_kernel: Option<String>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let planned = load_run(&self.file)?;
        let summary = perform(
            &planned.run,
            &self.folder,
            &How {
                version: match self.engine {
                    Engine::Live => VERSION,
                    // It is compared, and builds of two commits may do the same; host.json has
                    // the commit.
                    Engine::Virtual => env!("CARGO_PKG_VERSION"),
                },
                engine: self.engine,
                lab_kernel: self.lab_kernel,
                own_path: false,
                stop: stop::on_signal()?,
                progress: &|_| {},
            },
        )?;
        for doubt in &summary.doubts {
            say_line!("pillion-lab: {doubt}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
