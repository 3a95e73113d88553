use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_lab::engine::{Image, verify};

use crate::experiment;
use crate::print::print_line;
use crate::stop;
use pillion_settings::BadInput;

use super::board::Board;
use super::machine::MachineArgs;

/// Make a run again, and compare every byte of what it leaves
///
/// The run must have been made by the virtual engine. It is made again with the kernel and the
/// pillion of now. Names the files that differ, and ends with exit status 1 if there are any.
/// host.json, which tells of the host and of real time, is not compared.
#[derive(clap::Args)]
pub struct Args {
    /// The run's folder
    #[arg(value_name = "RUN")]
    run: PathBuf,

    #[command(flatten)]
    machine: MachineArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let file = self.run.join("run.toml");
        let text = fs::read_to_string(&file)
            .map_err(|error| BadInput(format!("{}: {error}", file.display())))?;
        let experiment = experiment::load(&file)?;
        let [planned] = &experiment.runs[..] else {
            return Err(BadInput(format!("{}: not one run", file.display())).into());
        };
        let machine = self.machine.machine(planned.run.seed)?;
        let pillion = std::env::current_exe().context("find the pillion binary")?;
        let image = Image::new(&pillion)?;
        let stop = stop::on_signal()?;
        let board = Board::new(&experiment.runs);
        let line = board.begin(planned);
        let differences = verify(
            &machine,
            &image,
            crate::VERSION,
            &text,
            &self.run,
            &stop,
            |time| {
                line.reached(time);
            },
        );
        drop(line);
        board.finish();
        let differences = differences?;
        if differences.is_empty() {
            print_line!("the same, bit for bit")?;
        }
        for difference in &differences {
            print_line!("{difference}")?;
        }
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }
}
