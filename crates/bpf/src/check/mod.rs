//! Whether this host has what bundling needs (`pillion check`).

mod devices;
mod tcp_options;

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use caps::{CapSet, Capability};
use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use serde::Serialize;

use crate::{
    Attachment, Cgroup, Device, Error, Hook, Namespace, Policy, Programs, Rule, Scope, Totals,
    cgroup2_mount, list_flows, open_cgroup2, socket_iter,
};

/// Looks at everything that bundling needs. Programs are tried in a network namespace made for
/// that, and serve no other; nothing on the host changes.
#[must_use]
pub fn check() -> Vec<CheckResult> {
    let mut results = vec![
        kernel(read("/proc/sys/kernel/osrelease")),
        types(),
        jit(),
        sack(),
        tcp_options::congestion(),
        privilege(),
        cgroup(),
    ];
    let rule = Rule {
        tcp_options: tcp_options::all_options(),
        ..Rule::default()
    };
    let policy = Policy {
        rules: vec![rule],
        scope: Scope::Namespaces(Vec::new()),
        ..Policy::default()
    };
    let programs = Programs::load(&policy);
    results.push(match &programs {
        Ok(_) => CheckResult::ok("programs", "accepted by the kernel's verifier"),
        Err(error) => refusal(error, &results),
    });
    if let Ok(programs) = programs {
        let has_socket_option = programs.setsockopt.is_some();
        let attachment = attachment(programs, &results);
        results.extend(attachment);
        results.push(own_cgroup(&results));
        results.push(socket_option(has_socket_option));
        results.push(socket_storage());
        results.push(match list_flows() {
            Ok(_) => CheckResult::ok("flow list", "readable"),
            Err(error @ Error::ListNotPermitted) => {
                let remedy = "bundling works without it; `pillion flows` requires the capability";
                CheckResult::problem("flow list", Severity::Warning, error.to_string(), remedy)
            }
            Err(error) => failure("flow list", &error, &results),
        });
    }
    results.extend(devices::results());
    results.extend(receivers());
    results.push(tun());
    results
}

/// A failed check; if its cause is in `previous`, the value refers to that check.
fn failure(name: &'static str, error: &Error, previous: &[CheckResult]) -> CheckResult {
    let is_missing = |result: &CheckResult| result.severity == Severity::Missing;
    let failed = error.to_string();
    let cause = previous.iter().find(|result| result.value == failed);
    CheckResult {
        name,
        severity: Severity::Missing,
        value: cause.map_or(failed, |result| format!("requires {}", result.name)),
        remedy: previous
            .iter()
            .any(is_missing)
            .then(|| "fix the problems above first".to_owned()),
    }
}

/// A failed load of the programs.
fn refusal(error: &Error, previous: &[CheckResult]) -> CheckResult {
    let mut result = failure("programs", error, previous);
    if matches!(error, Error::Load { .. }) {
        let remedy = "use Linux 6.1 or newer, or a distribution's kernel with its eBPF";
        result.remedy.get_or_insert_with(|| remedy.to_owned());
    }
    result
}

/// Shows the version and does not judge it: distributions add features of later kernels, so only a
/// trial shows what a kernel supports.
fn kernel(release: String) -> CheckResult {
    CheckResult::ok("kernel", release)
}

fn types() -> CheckResult {
    let path = "/sys/kernel/btf/vmlinux";
    if Path::new(path).exists() {
        CheckResult::ok("kernel types", path)
    } else {
        let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as in most distributions";
        CheckResult::problem(
            "kernel types",
            Severity::Missing,
            format!("no {path}"),
            remedy,
        )
    }
}

fn jit() -> CheckResult {
    match read("/proc/sys/net/core/bpf_jit_enable").as_str() {
        "0" => CheckResult::problem(
            "BPF compiler",
            Severity::Warning,
            "off: programs are interpreted, several times slower",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        _ => CheckResult::ok("BPF compiler", "on"),
    }
}

fn sack() -> CheckResult {
    match read("/proc/sys/net/ipv4/tcp_sack").as_str() {
        "0" => CheckResult::problem(
            "SACK",
            Severity::Warning,
            "off: repaired losses cannot be distinguished from delayed ACKs",
            "sysctl net.ipv4.tcp_sack=1",
        ),
        _ => CheckResult::ok("SACK", "on"),
    }
}

fn privilege() -> CheckResult {
    const NEEDED: [Capability; 3] = [
        Capability::CAP_NET_ADMIN,
        Capability::CAP_PERFMON,
        Capability::CAP_BPF,
    ];
    let effective = caps::read(None, CapSet::Effective).unwrap_or_default();
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|it| !effective.contains(it))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        return CheckResult::ok("privilege", NEEDED.map(|it| it.to_string()).join(", "));
    }
    CheckResult::problem(
        "privilege",
        Severity::Missing,
        format!("without {}", missing.join(", ")),
        "run as root, with sudo, or as a service",
    )
}

fn cgroup() -> CheckResult {
    match cgroup2_mount() {
        Ok(path) => CheckResult::ok("cgroup v2", path.display().to_string()),
        // It has the remedy.
        Err(error) => failure("cgroup v2", &error, &[]),
    }
}

/// `run` makes a cgroup for its command; `attach` needs none.
fn own_cgroup(previous: &[CheckResult]) -> CheckResult {
    let created = Cgroup::create().and_then(|cgroup| cgroup.remove());
    match created {
        Ok(()) => CheckResult::ok("own cgroup", "can be created, as by `pillion run`"),
        Err(error @ Error::NoCgroup2) => failure("own cgroup", &error, previous),
        Err(error) => CheckResult::problem(
            "own cgroup",
            Severity::Warning,
            error.to_string(),
            "`pillion attach` works without it",
        ),
    }
}

fn socket_option(is_there: bool) -> CheckResult {
    if is_there {
        return CheckResult::ok(
            "socket option",
            "applications may switch bundling on for their sockets",
        );
    }
    CheckResult::problem(
        "socket option",
        Severity::Warning,
        "socket options are not supported: only rules enable bundling",
        "use Linux 5.18 or newer",
    )
}

fn socket_storage() -> CheckResult {
    if socket_iter::is_storage_iterator_supported() {
        return CheckResult::ok("socket storage", "iterable");
    }
    CheckResult::problem(
        "socket storage",
        Severity::Warning,
        "the kernel refuses iterators over it: connections are found only in this network \
         namespace and in the open files of processes",
        "everything else works",
    )
}

/// Checks attaching: tries it at the loopback device of a temporary network namespace, and adds a
/// connection there. The programs cover only that namespace.
fn attachment(mut programs: Programs, previous: &[CheckResult]) -> Vec<CheckResult> {
    let hook = Hook::of_this_kernel();
    let attempt = thread::spawn(move || -> Result<Option<Totals>, Error> {
        match unshare(CloneFlags::CLONE_NEWNET) {
            Err(Errno::EPERM) => return Ok(None),
            created => {
                created.map_err(|errno| Error::system("make a network namespace", errno.into()))?;
            }
        }
        programs.scoped.add(&Namespace::default())?;
        let devices = Device::select(&["lo".to_owned()])?;
        let connection = tcp_options::connection()?;
        let cgroup = open_cgroup2()?;
        let totals = Attachment::new(programs, cgroup.as_fd(), &devices).and_then(|attachment| {
            attachment.review()?;
            attachment.totals()
        });
        drop(connection);
        totals.map(Some)
    });
    match attempt.join() {
        Ok(Ok(None)) => vec![CheckResult::problem(
            "attaching",
            Severity::Warning,
            "not tested: creating a network namespace for the test requires CAP_SYS_ADMIN",
            "`pillion attach` works without it; to test it here, run the check as root",
        )],
        Ok(Ok(Some(totals))) if totals.connections_failed > 0 => vec![CheckResult::problem(
            "attaching",
            Severity::Missing,
            "the kernel allocates no memory for the state of a connection",
            "raise net.core.optmem_max; Linux 6.18 and newer require a processor with CMPXCHG16B",
        )],
        Ok(Ok(Some(totals))) => {
            let attachment =
                CheckResult::ok("attaching", format!("{hook}, cgroup and TCP iterator"));
            let tcp_options = tcp_options::results(&totals);
            [attachment].into_iter().chain(tcp_options).collect()
        }
        Ok(Err(error)) => vec![failure("attaching", &error, previous)],
        Err(_) => vec![CheckResult::problem(
            "attaching",
            Severity::Missing,
            "the test crashed",
            "report this",
        )],
    }
}

fn tun() -> CheckResult {
    let path = "/dev/net/tun";
    if Path::new(path).exists() {
        CheckResult::ok("lab", path)
    } else {
        let remedy = "modprobe tun (only for `pillion-lab`)";
        CheckResult::problem("lab", Severity::Warning, format!("no {path}"), remedy)
    }
}

/// How a finding bears on bundling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The finding is as it should be.
    Ok,
    /// Bundling works, but not as well as it could.
    Warning,
    /// Bundling cannot work.
    Missing,
}

/// The result of one check of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The name of the check.
    pub name: &'static str,
    /// How the finding bears on bundling.
    pub severity: Severity,
    /// The value found, in words.
    pub value: String,
    /// The remedy for the user, if there is a problem.
    pub remedy: Option<String>,
}

impl CheckResult {
    pub(crate) fn ok(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            severity: Severity::Ok,
            value: value.into(),
            remedy: None,
        }
    }

    pub(crate) fn problem(
        name: &'static str,
        severity: Severity,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            severity,
            value: value.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// A file of the kernel's in one line; empty where it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Warns if sockets of this host may be in a sockmap with a verdict program: the kernel passes
/// whole packets to it, including data received before (`tcp_read_skb()`). `None` without
/// CAP_SYS_ADMIN, which is required to see it.
fn receivers() -> Option<CheckResult> {
    let mut programs = ProgInfoIter::default().filter(|program| program.ty == ProgramType::SkSkb);
    let name = programs.next()?.name;
    let value = format!(
        "{} (sk_skb) is loaded: sockets in its sockmap read redundant bytes twice",
        name.to_string_lossy()
    );
    let remedy = "exclude connections to them by a rule with mode = \"never\"";
    Some(CheckResult::problem(
        "receivers",
        Severity::Warning,
        value,
        remedy,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_below_tested_ones_is_left_to_the_trial() {
        let result = kernel("5.14.0-503.11.1.el9_5.x86_64".to_owned());
        assert_eq!(result.severity, Severity::Ok);
    }

    #[test]
    fn refused_programs_name_the_oldest_tested_kernel() {
        let error = Error::Load {
            reason: "invalid argument".to_owned(),
        };
        let result = refusal(&error, &[]);
        assert_eq!(result.severity, Severity::Missing);
        assert!(result.remedy.unwrap().contains("Linux 6.1"));
    }
}
