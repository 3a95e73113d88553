use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::print::print;

/// Write the manual pages into a folder, or a shell's completions to standard output
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    /// The folder for the manual pages; made if it is not there
    #[arg(required_unless_present = "completions")]
    folder: Option<PathBuf>,

    /// Write completions for this shell instead
    #[arg(long, value_name = "SHELL", conflicts_with = "folder")]
    completions: Option<Shell>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if let Some(shell) = self.completions {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pillion", &mut script);
            print(&String::from_utf8_lossy(&script))?;
        }
        if let Some(folder) = self.folder {
            fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
                .with_context(|| format!("write manual pages to {}", folder.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
