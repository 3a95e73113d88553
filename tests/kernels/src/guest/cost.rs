//! What it costs the verifier to accept each program, as the kernel says.

use std::ffi::OsStr;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use pillion_bpf::{Attachment, Cgroup, Device, Policy, Programs};
use pillion_lab::queue::{Recording, Target};

use super::teller::Teller;
use crate::report::{Costs, Report};

/// Has all of pillion's programs loaded at a time, and looks at them.
pub fn measure(teller: &Teller) -> Result<(), String> {
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
