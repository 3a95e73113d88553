//! `pillion-lab boot`, and the options of all commands that start lab kernels.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use nix::sched::sched_getcpu;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;
use pillion_cli::stop;
use pillion_lab::PROGRAM;
use pillion_lab::campaign::Kernels;
use pillion_lab::engine::{Image, Job, LabKernel, Machines, cores, find_program};

/// Run a program in a Linux kernel with virtual time
///
/// The kernel is User Mode Linux with time travel (`make lab-kernel` builds it). Waiting costs
/// nothing and computing takes no time. The same program with the same seed repeats exactly, to the
/// nanosecond. The program runs as root, in a kernel and file system of its own, with the host's
/// sh, ip, tc and tcpdump (`--tool pillion` adds the service). pillion-lab needs no privileges,
/// prints the program's output, and exits with its status, or with 124 after the time limit.
#[derive(clap::Args)]
#[command(override_usage = "pillion-lab boot [OPTIONS] -- <PROGRAM>...")]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,

    /// Seed of all random numbers in the kernel
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Copy another program of the host to /bin; may be repeated
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,

    /// Copy a file of the host to this path; may be repeated
    #[arg(long, value_name = "FILE:PATH")]
    file: Vec<String>,

    /// Set a variable of the program's environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Copy /results to this folder of the host, also after a crash of the kernel
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Virtual time after which the program is stopped
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    time_limit: Option<Duration>,

    /// The program, by name or path, and its arguments, after `--`
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<String>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let machine = self.machine.machines()?.for_program(self.seed, this_core());
        let own = this_program()?;
        let mut image = Image::new(&own)?;
        image.add_programs(&self.tool)?;
        for argument in &self.file {
            let (source, path) = pair(argument, ':', "--file", "FILE:PATH")?;
            image.add_file(source.as_ref(), path)?;
        }
        let (name, arguments) = self.program.split_first().context("a program")?;
        let found = match name.as_str() {
            PROGRAM => own,
            name => find_program(name)
                .ok_or_else(|| BadInput(format!("program not found on this host: {name}")))?,
        };
        let mut job = Job {
            program: image.add_program(&found)?,
            arguments: arguments.to_vec(),
            time_limit: self.time_limit,
            ..Job::default()
        };
        for argument in &self.env {
            let (name, value) = pair(argument, '=', "--env", "NAME=VALUE")?;
            job.environment.insert(name.to_owned(), value.to_owned());
        }
        image.set_job(&job);
        if let Some(folder) = &self.results {
            fs::create_dir_all(folder)
                .with_context(|| format!("make --results {}", folder.display()))?;
        }
        let stop = stop::on_signal()?;
        let results = self.results.as_deref();
        let running = machine.start(
            &image,
            results,
            Box::new(io::stdout()),
            Box::new(io::stderr()),
        )?;
        let ending = running.wait(&stop, |_| {})?;
        Ok(ExitCode::from(ending.status()))
    }
}

fn pair<'a>(
    argument: &'a str,
    sign: char,
    option: &str,
    expected: &str,
) -> Result<(&'a str, &'a str), BadInput> {
    argument.split_once(sign).ok_or_else(|| {
        BadInput(format!(
            "invalid {option} `{argument}`: expected {expected}"
        ))
    })
}

/// Options of all commands that start lab kernels.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Lab kernel, or `sanitizing` for the latest one with sanitizers [default: PILLION_LAB_KERNEL,
    /// or the latest one of `make lab-kernel`]; runs with another tick rate use a kernel of their
    /// own
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// Memory of the lab kernel in MiB, including the run's results [default: `memory` of the
    /// experiment, or 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,

    /// Stop a lab kernel whose virtual time makes no progress for this long
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration)]
    stall_timeout: Duration,
}

impl MachineArgs {
    /// Returns the configuration of lab kernels.
    pub fn machines(&self) -> Result<Machines> {
        Ok(Machines {
            kernel: LabKernel::find(self.kernel.as_deref())?,
            memory_mib: self.memory,
            stall_timeout: self.stall_timeout,
        })
    }

    /// Returns lab kernels for `jobs` concurrent runs; by default one per core.
    pub fn kernels(&self, jobs: Option<NonZeroUsize>) -> Result<Kernels> {
        let mut cores = cores()?;
        cores.truncate(jobs.map_or(usize::MAX, NonZeroUsize::get));
        Ok(Kernels {
            machines: self.machines()?,
            image: Image::new(&this_program()?)?,
            cores,
        })
    }
}

/// Returns the path of this program, which is the init of each lab kernel.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program")
}

/// Returns the current processor core; a lab kernel is fastest on one core.
pub fn this_core() -> Option<usize> {
    sched_getcpu().ok()
}
