//! The first process of the guest: it does the work, and switches the machine off.

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
use pillion_lab::engine::make_place;
use pillion_lab::queue::{Recording, Target};

use crate::outcome::outcomes;
use crate::report::{Costs, Finding, JOB_FILE, Job, Part, REPORTS, Report};

/// The binary under test, in the image.
const PILLION: &str = "/bin/pillion";
const PILLION_LAB: &str = "/bin/pillion-lab";

/// Does the work of the first process, and ends the machine.
pub fn run() -> ! {
    if let Err(reason) = work() {
        // The console is all that is left.
        eprintln!("kernels: {reason}");
    }
    loop {
        // The first process must not end.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

fn work() -> Result<(), String> {
    make_place()?;
    let teller = Teller::open()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    teller.part(Part::Boot, || insert_modules(&job.modules))?;
    if !job.environments.is_empty() && teller.part(Part::Check, || run_check(&teller))? {
        teller.part(Part::Environments, || {
            environments::run(&job.environments, job.plain, &teller)
        })?;
    }
    if let Some(wire) = &job.wire {
        // Where something is missing, nothing else can work.
        if teller.part(Part::Check, || run_check(&teller))? {
            teller.part(Part::Cost, || measure_cost(&teller))?;
            teller.part(Part::Streams, || streams::run(&teller))?;
            teller.part(Part::Wire, || run_wire(wire, &job.wire_runs, &teller))?;
            // It cannot be undone, and so is last.
            teller.part(Part::LockedDown, || {
                lock_down().and_then(|()| streams::run_locked_down(&teller))
            })?;
        }
    }
    teller.tell(&Report::End)
}

/// Inserts modules, in this order.
fn insert_modules(files: &[String]) -> Result<(), String> {
    for path in files {
        let failed = |error: String| format!("{path}: {error}");
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        finit_module(file, c"", ModuleInitFlags::empty())
            .map_err(|errno| failed(errno.to_string()))?;
    }
    Ok(())
}

/// What pillion says of this kernel; nothing may be missing.
fn run_check(teller: &Teller) -> Result<(), String> {
    let output = Command::new(PILLION).args(["check", "--json"]).output();
    let output = output.map_err(|error| format!("{PILLION}: {error}"))?;
    let findings: Vec<Finding> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let missing = findings.iter().find(|it| it.standing == "missing");
    let missing = missing.map(|it| format!("{}: {}", it.name, it.found));
    teller.tell(&Report::Check(findings))?;
    missing.map_or(Ok(()), Err)
}

/// Has all of pillion's programs loaded at a time, and looks at them.
fn measure_cost(teller: &Teller) -> Result<(), String> {
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
    teller.tell(&Report::Costs(costs))
}

/// Of all programs that this kernel has: no others were loaded.
fn costs() -> Result<Costs, String> {
    let options = ProgInfoQueryOptions::default().include_func_info(true);
    let programs = ProgInfoIter::with_query_opts(options);
    programs
        .map(|program| Ok((full_name(&program)?, program.verified_insns)))
        .collect()
}

/// The kernel keeps 15 letters of a program's name, and all of its functions'.
fn full_name(program: &ProgramInfo) -> Result<String, String> {
    let types = Btf::from_prog_id(program.id).map_err(|error| error.to_string())?;
    let main = program.func_info.first().map(|info| info.type_id.into());
    let main = main.and_then(|id| types.type_by_id::<Func<'_>>(id));
    let name = main.and_then(|function| function.name().map(OsStr::to_owned));
    let name = name.unwrap_or_else(|| program.name.clone());
    name.into_string()
        .map_err(|name| format!("{}: not a name", name.display()))
}

/// The exit status of the test harness where a test failed.
const TESTS_FAILED: i32 = 101;

/// How often a test that failed is run again.
const CHANCES: usize = 2;

/// Runs the tests of the wire, and passes on what they print; those that failed again, one at a time:
/// an emulated machine may stand still for longer than a test waits.
fn run_wire(program: &str, runs: &[Vec<String>], teller: &Teller) -> Result<(), String> {
    let mut printed = Vec::new();
    for arguments in runs {
        let lines = run_once(program, arguments, |line| {
            teller.tell(&Report::Wire(line.to_owned()))
        });
        printed.extend(lines?);
    }
    for _ in 0..CHANCES {
        let outcomes = outcomes(&printed).into_iter();
        let failed: Vec<_> = outcomes.filter(|it| !it.1).map(|(name, _)| name).collect();
        if failed.is_empty() {
            break;
        }
        let alone = ["--test-threads=1", "--exact"].map(str::to_owned);
        let arguments = [&alone[..], &failed].concat();
        printed = run_once(program, &arguments, |line| {
            teller.tell(&Report::WireAgain(line.to_owned()))
        })?;
    }
    Ok(())
}

/// A program that ends otherwise than by its tests' outcome is an error: of those that it left out
/// nothing is known.
fn run_once(
    program: &str,
    arguments: &[String],
    tell: impl Fn(&str) -> Result<(), String>,
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
        tell(&line)?;
        lines.push(line);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(0 | TESTS_FAILED) => Ok(lines),
        _ => Err(format!("{program} {}: {status}", arguments.join(" "))),
    }
}

const SECURITY: &str = "/sys/kernel/security";

/// Has the kernel keep its memory from everybody, programs in it included: as with
/// `lockdown=confidentiality` on its command line, and for as long as it runs.
fn lock_down() -> Result<(), String> {
    let none: Option<&str> = None;
    let mounted = mount(none, SECURITY, Some("securityfs"), MsFlags::empty(), none);
    mounted.map_err(|errno| format!("{SECURITY}: {errno}"))?;
    let path = format!("{SECURITY}/lockdown");
    fs::write(&path, "confidentiality").map_err(|error| format!("{path}: {error}"))
}

/// Tells the host.
pub struct Teller(RefCell<File>);

impl Teller {
    pub fn open() -> Result<Self, String> {
        let port = File::options().write(true).open(REPORTS);
        port.map(|port| Self(RefCell::new(port)))
            .map_err(|error| format!("{REPORTS}: {error}"))
    }

    pub fn tell(&self, report: &Report) -> Result<(), String> {
        let mut line = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = self.0.borrow_mut().write_all(&line);
        written.map_err(|error| format!("{REPORTS}: {error}"))
    }

    /// Does a part of the work and tells what came of it; `false` if it failed.
    pub fn part(
        &self,
        part: Part,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, String> {
        let came = work();
        let passed = came.is_ok();
        if let Err(reason) = came {
            self.tell(&Report::Failed(part, reason))?;
        }
        self.tell(&Report::Done(part))?;
        Ok(passed)
    }
}
