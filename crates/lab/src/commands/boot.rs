//! `pillion-lab boot`, and the options of all that runs in the lab kernel.

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

/// Run a program in a Linux kernel whose time is virtual
///
/// The kernel is User Mode Linux with time travel (`make lab-kernel` builds it): waiting costs
/// nothing, computing takes no time, and the same program with the same seed does the same
/// again, to the nanosecond. The program runs as root, in a kernel and file system of its own,
/// with the host's sh, ip, tc and tcpdump (`--tool pillion` adds the service). pillion-lab needs no
/// privileges for it, prints the program's output, and exits with its status; 124 if the time limit
/// ended it.
#[derive(clap::Args)]
#[command(override_usage = "pillion-lab boot [OPTIONS] -- <PROGRAM>...")]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,

    /// Seed of every random number inside
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Another program of the host to have inside, in /bin; may be given several times
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,

    /// A file of the host to have inside, and its path there; may be given several times
    #[arg(long, value_name = "FILE:PATH")]
    file: Vec<String>,

    /// A variable of the program's environment; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Folder of the host that gets what the program leaves in /results, as far as it came should
    /// the kernel break down
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Seconds of virtual time after which the program is stopped
    #[arg(long, value_name = "S", value_parser = parse_duration)]
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
        for given in &self.file {
            let (source, path) = pair(given, ':', "--file", "FILE:PATH")?;
            image.add_file(source.as_ref(), path)?;
        }
        let (name, arguments) = self.program.split_first().context("a program")?;
        let found = match name.as_str() {
            PROGRAM => own,
            name => find_program(name)
                .ok_or_else(|| BadInput(format!("{name}: no such program on this host")))?,
        };
        let mut job = Job {
            program: image.add_program(&found)?,
            arguments: arguments.to_vec(),
            time_limit: self.time_limit,
            ..Job::default()
        };
        for given in &self.env {
            let (name, value) = pair(given, '=', "--env", "NAME=VALUE")?;
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
    given: &'a str,
    sign: char,
    option: &str,
    manner: &str,
) -> Result<(&'a str, &'a str), BadInput> {
    given
        .split_once(sign)
        .ok_or_else(|| BadInput(format!("{option} {given}: not {manner}")))
}

/// Options of everything that runs in the lab kernel.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// The lab kernel, or `sanitizing` for the last that was built to look for faults of its own
    /// [default: that of PILLION_LAB_KERNEL, else the last that `make lab-kernel` built]; runs that
    /// ask for other ticks have a kernel of their own
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// The lab kernel's memory in MiB; what a run leaves must fit into it [default: the `memory` of
    /// the experiment, else 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,

    /// Seconds of work during which virtual time may stand still
    #[arg(long, value_name = "S", default_value = "20", value_parser = parse_duration)]
    patience: Duration,
}

impl MachineArgs {
    /// What the lab kernels run on.
    pub fn machines(&self) -> Result<Machines> {
        Ok(Machines {
            kernel: LabKernel::find(self.kernel.as_deref())?,
            memory_mib: self.memory,
            patience: self.patience,
        })
    }

    /// Lab kernels that make runs, so many at a time, or else one on each core.
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

/// The path of this program, which is each lab kernel's init.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program")
}

/// The processor core that pillion runs on just now; a lab kernel is fastest on one core.
pub fn this_core() -> Option<usize> {
    sched_getcpu().ok()
}
