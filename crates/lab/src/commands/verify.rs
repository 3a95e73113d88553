use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::print_line;
use pillion_cli::settings::BadInput;
use pillion_cli::stop;
use pillion_lab::campaign::Progress;
use pillion_lab::engine::{Image, verify};
use pillion_lab::run::RUN_FILE;
use pillion_lab::settings::experiment::load_run;

use super::board::Board;
use super::machine::{MachineArgs, this_core, this_program};

/// Repeat a run, and compare every byte of its results
///
/// The run must have been made by the virtual engine. It is made again with the kernel and the
/// pillion of now. Names the files that differ, and ends with exit status 1 if there are any.
/// host.json, which tells of the host and of real time, is not compared, nor is run.toml.
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
        let file = self.run.join(RUN_FILE);
        if !file.is_file() {
            let why = "is the folder of no run; `pillion-lab list` names runs";
            return Err(BadInput(format!("{}: it {why}", self.run.display())).into());
        }
        let planned = load_run(&file)?;
        let machine = self
            .machine
            .machines()?
            .for_run(&planned.run, this_core())?;
        let image = Image::new(&this_program()?)?;
        let stop = stop::on_signal()?;
        let board = Board::new(std::slice::from_ref(&planned));
        let line = board.begin(&planned);
        let differences = verify(
            &machine,
            &image,
            pillion_cli::VERSION,
            &planned.run,
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
