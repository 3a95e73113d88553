//! First process of the guest: it does the work and powers the machine off.

mod environments;
mod link;
mod sockets;
mod streams;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use pillion_bpf::{Attachment, Cgroup, Device, Policy, Programs};
use pillion_lab::engine::prepare_guest;
use pillion_lab::queue::{Recording, Target};

use crate::outcome::outcomes;
use crate::report::{CheckResult, Costs, JOB_FILE, Job, Part, REPORTS, Report};

/// Binaries under test, in the image.
const PILLION: &str = "/bin/pillion";
const PILLION_LAB: &str = "/bin/pillion-lab";

/// Runs the guest's work and powers the machine off.
pub fn run() -> ! {
    if let Err(reason) = work() {
        // Only the console is left.
        eprintln!("kernels: {reason}");
    }
    loop {
        // The first process must not exit.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

fn work() -> Result<(), String> {
    prepare_guest()?;
    let reporter = Reporter::open()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    reporter.part(Part::Boot, || insert_modules(&job.modules))?;
    if !job.environments.is_empty() && reporter.part(Part::Check, || run_check(&reporter))? {
        reporter.part(Part::Environments, || {
            environments::run(&job.environments, job.plain, &reporter)
        })?;
    }
    if let Some(wire) = &job.wire {
        // If a check fails, no other part can work.
        if reporter.part(Part::Check, || run_check(&reporter))? {
            reporter.part(Part::Cost, || measure_cost(&reporter))?;
            reporter.part(Part::Streams, || streams::run(&reporter))?;
            reporter.part(Part::Wire, || run_wire(wire, &job.wire_runs, &reporter))?;
            // Lockdown cannot be undone, so it is the last part.
            reporter.part(Part::LockedDown, || {
                lock_down().and_then(|()| streams::run_locked_down(&reporter))
            })?;
        }
    }
    reporter.emit(&Report::End)
}

/// Inserts modules in this order.
fn insert_modules(files: &[String]) -> Result<(), String> {
    for path in files {
        let failed = |error: String| format!("{path}: {error}");
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        finit_module(file, c"", ModuleInitFlags::empty())
            .map_err(|errno| failed(errno.to_string()))?;
    }
    Ok(())
}

/// Runs `pillion check`; an error if anything is missing.
fn run_check(reporter: &Reporter) -> Result<(), String> {
    let output = Command::new(PILLION).args(["check", "--json"]).output();
    let output = output.map_err(|error| format!("{PILLION}: {error}"))?;
    let check_results: Vec<CheckResult> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let missing = check_results.iter().find(|it| it.severity == "missing");
    let missing = missing.map(|it| format!("{}: {}", it.name, it.value));
    reporter.emit(&Report::Check(check_results))?;
    missing.map_or(Ok(()), Err)
}

/// Loads all of pillion's programs and reports their verification cost.
fn measure_cost(reporter: &Reporter) -> Result<(), String> {
    let failed = |error: pillion_bpf::Error| error.to_string();
    let loopback = "lo".to_owned();
    let devices = Device::select(std::slice::from_ref(&loopback)).map_err(failed)?;
    let programs = Programs::load(&Policy::default()).map_err(failed)?;
    let cgroup = Cgroup::create().map_err(failed)?;
    let attachment = Attachment::new(programs, cgroup.as_fd(), &devices).map_err(failed)?;
    let flows = attachment.flows().map_err(failed)?;
    let queue = Target::find(&loopback).and_then(|target| Recording::start(&target, |_| Ok(())));
    let queue = queue.map_err(|error| error.to_string())?;
    let costs = costs()?;
    queue.stop().map_err(|error| error.to_string())?;
    drop((flows, attachment));
    cgroup.remove().map_err(failed)?;
    reporter.emit(&Report::Costs(costs))
}

/// Returns the costs of all programs in this kernel, in which only pillion's are loaded.
fn costs() -> Result<Costs, String> {
    let options = ProgInfoQueryOptions::default().include_func_info(true);
    let programs = ProgInfoIter::with_query_opts(options);
    programs
        .map(|program| Ok((full_name(&program)?, program.verified_insns)))
        .collect()
}

/// Returns the program's full name from its function's BTF: the kernel truncates program names to
/// 15 characters.
fn full_name(program: &ProgramInfo) -> Result<String, String> {
    let types = Btf::from_prog_id(program.id).map_err(|error| error.to_string())?;
    let main = program.func_info.first().map(|info| info.type_id.into());
    let main = main.and_then(|id| types.type_by_id::<Func<'_>>(id));
    let name = main.and_then(|function| function.name().map(OsStr::to_owned));
    let name = name.unwrap_or_else(|| program.name.clone());
    name.into_string()
        .map_err(|name| format!("{}: not a name", name.display()))
}

/// Exit status of the test harness after failed tests.
const TESTS_FAILED: i32 = 101;

/// Maximum number of reruns of a failed test.
const MAX_RERUNS: usize = 2;

/// Runs the wire tests and forwards their output. Failed tests run again, one at a time, because an
/// emulated machine may stall for longer than a test waits.
fn run_wire(program: &str, runs: &[Vec<String>], reporter: &Reporter) -> Result<(), String> {
    let mut printed = Vec::new();
    for arguments in runs {
        let lines = run_once(program, arguments, |line| {
            reporter.emit(&Report::Wire(line.to_owned()))
        });
        printed.extend(lines?);
    }
    for _ in 0..MAX_RERUNS {
        let outcomes = outcomes(&printed).into_iter();
        let failed: Vec<_> = outcomes.filter(|it| !it.1).map(|(name, _)| name).collect();
        if failed.is_empty() {
            break;
        }
        let one_at_a_time = ["--test-threads=1", "--exact"].map(str::to_owned);
        let arguments = [&one_at_a_time[..], &failed].concat();
        printed = run_once(program, &arguments, |line| {
            reporter.emit(&Report::WireAgain(line.to_owned()))
        })?;
    }
    Ok(())
}

/// Runs the test program. Any exit status other than passed or failed tests is an error, because
/// tests may not have run.
fn run_once(
    program: &str,
    arguments: &[String],
    emit: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map(BufReader::new);
    let mut lines = Vec::new();
    for line in output.into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(failed)?;
        emit(&line)?;
        lines.push(line);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(0 | TESTS_FAILED) => Ok(lines),
        _ => Err(format!("{program} {}: {status}", arguments.join(" "))),
    }
}

const SECURITY: &str = "/sys/kernel/security";

/// Locks the kernel down: programs can no longer read its memory, as with
/// `lockdown=confidentiality` on its command line. This cannot be undone.
fn lock_down() -> Result<(), String> {
    let none: Option<&str> = None;
    let mounted = mount(none, SECURITY, Some("securityfs"), MsFlags::empty(), none);
    mounted.map_err(|errno| format!("{SECURITY}: {errno}"))?;
    let path = format!("{SECURITY}/lockdown");
    fs::write(&path, "confidentiality").map_err(|error| format!("{path}: {error}"))
}

/// Sends reports to the host.
pub struct Reporter(RefCell<File>);

impl Reporter {
    pub fn open() -> Result<Self, String> {
        let port = File::options().write(true).open(REPORTS);
        port.map(|port| Self(RefCell::new(port)))
            .map_err(|error| format!("{REPORTS}: {error}"))
    }

    pub fn emit(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = self.0.borrow_mut().write_all(&line);
        written.map_err(|error| format!("{REPORTS}: {error}"))
    }

    /// Runs a part of the work and reports its result; `false` if it failed.
    pub fn part(
        &self,
        part: Part,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, String> {
        let result = work();
        let passed = result.is_ok();
        if let Err(reason) = result {
            self.emit(&Report::Failed(part, reason))?;
        }
        self.emit(&Report::Done(part))?;
        Ok(passed)
    }
}
