//! Whether this host has what bundling needs (`pillion check`).

mod companions;
mod devices;

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
pub fn check() -> Vec<Finding> {
    let mut findings = vec![
        kernel(),
        types(),
        jit(),
        sack(),
        companions::congestion(),
        privilege(),
        cgroup(),
    ];
    let rule = Rule {
        companions: companions::every(),
        ..Rule::default()
    };
    let policy = Policy {
        rules: vec![rule],
        scope: Scope::Namespaces(Vec::new()),
        ..Policy::default()
    };
    let programs = Programs::load(&policy);
    findings.push(match &programs {
        Ok(_) => Finding::ok("programs", "accepted by the kernel's verifier"),
        Err(error) => failure("programs", error, &findings),
    });
    if let Ok(programs) = programs {
        let has_socket_option = programs.setsockopt.is_some();
        let attaching = attaching(programs, &findings);
        findings.extend(attaching);
        findings.push(own_cgroup(&findings));
        findings.push(socket_option(has_socket_option));
        findings.push(socket_storage());
        findings.push(match list_flows() {
            Ok(_) => Finding::ok("flow list", "readable"),
            Err(error @ Error::MayNotList) => {
                let remedy = "bundling does without; `pillion flows` needs the capability";
                Finding::bad("flow list", Standing::Warning, error.to_string(), remedy)
            }
            Err(error) => failure("flow list", &error, &findings),
        });
    }
    findings.extend(devices::findings());
    findings.extend(receivers());
    findings.push(tun());
    findings
}

/// What failed; where something that it takes is `above`, because of that.
fn failure(name: &'static str, error: &Error, above: &[Finding]) -> Finding {
    let is_missing = |finding: &Finding| finding.standing == Standing::Missing;
    let failed = error.to_string();
    let said = above.iter().find(|finding| finding.found == failed);
    Finding {
        name,
        standing: Standing::Missing,
        found: said.map_or(failed, |finding| format!("takes {}", finding.name)),
        remedy: above
            .iter()
            .any(is_missing)
            .then(|| "mend the lines above first".to_owned()),
    }
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 1) {
        Finding::ok("kernel", release)
    } else if version >= (5, 15) {
        let remedy = "use Linux 6.1 or newer, on which pillion was tested";
        Finding::bad("kernel", Standing::Warning, release, remedy)
    } else {
        let remedy = "the programs need Linux 5.15 or newer";
        Finding::bad("kernel", Standing::Missing, release, remedy)
    }
}

fn types() -> Finding {
    let path = "/sys/kernel/btf/vmlinux";
    if Path::new(path).exists() {
        Finding::ok("kernel types", path)
    } else {
        let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' are";
        Finding::bad(
            "kernel types",
            Standing::Missing,
            format!("no {path}"),
            remedy,
        )
    }
}

fn jit() -> Finding {
    match read("/proc/sys/net/core/bpf_jit_enable").as_str() {
        "0" => Finding::bad(
            "BPF compiler",
            Standing::Warning,
            "off: programs are interpreted, several times slower",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        _ => Finding::ok("BPF compiler", "on"),
    }
}

fn sack() -> Finding {
    match read("/proc/sys/net/ipv4/tcp_sack").as_str() {
        "0" => Finding::bad(
            "SACK",
            Standing::Warning,
            "off: losses that bundles repair cannot be told from delayed ACKs",
            "sysctl net.ipv4.tcp_sack=1",
        ),
        _ => Finding::ok("SACK", "on"),
    }
}

fn privilege() -> Finding {
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
        return Finding::ok("privilege", NEEDED.map(|it| it.to_string()).join(", "));
    }
    Finding::bad(
        "privilege",
        Standing::Missing,
        format!("without {}", missing.join(", ")),
        "run as root, or give the binary the capabilities: \
         setcap cap_bpf,cap_perfmon,cap_net_admin,cap_dac_override+ep pillion",
    )
}

fn cgroup() -> Finding {
    match cgroup2_mount() {
        Ok(path) => Finding::ok("cgroup v2", path.display().to_string()),
        // It has the remedy.
        Err(error) => failure("cgroup v2", &error, &[]),
    }
}

/// `run` makes a cgroup for its command; `attach` needs none.
fn own_cgroup(above: &[Finding]) -> Finding {
    let made = Cgroup::create().and_then(|cgroup| cgroup.remove());
    match made {
        Ok(()) => Finding::ok("own cgroup", "can be made, as `pillion run` does"),
        Err(error @ Error::NoCgroup2) => failure("own cgroup", &error, above),
        Err(error) => Finding::bad(
            "own cgroup",
            Standing::Warning,
            error.to_string(),
            "`pillion attach` does without",
        ),
    }
}

fn socket_option(is_there: bool) -> Finding {
    if is_there {
        return Finding::ok(
            "socket option",
            "applications may switch bundling on for their sockets",
        );
    }
    Finding::bad(
        "socket option",
        Standing::Warning,
        "socket options cannot be answered: bundling is by rule alone",
        "use Linux 5.18 or newer",
    )
}

fn socket_storage() -> Finding {
    if socket_iter::can_be_over_storage() {
        return Finding::ok("socket storage", "connections are found by it");
    }
    Finding::bad(
        "socket storage",
        Standing::Warning,
        "the kernel lets no program go through it: connections are looked for where TCP of this \
         network namespace and processes have them",
        "all else works; docs/bundling.md has what is missed",
    )
}

/// Findings about attaching: tries it at the loopback device of a network namespace that dies with
/// its thread, and takes in a connection there. The programs serve that namespace alone.
fn attaching(mut programs: Programs, above: &[Finding]) -> Vec<Finding> {
    let hook = Hook::of_this_kernel();
    let attempt = thread::spawn(move || -> Result<Option<Totals>, Error> {
        match unshare(CloneFlags::CLONE_NEWNET) {
            Err(Errno::EPERM) => return Ok(None),
            made => {
                made.map_err(|errno| Error::system("make a network namespace", errno.into()))?;
            }
        }
        programs.served.begin(&Namespace::default())?;
        let devices = Device::select(&["lo".to_owned()])?;
        let connection = companions::connection()?;
        let cgroup = open_cgroup2()?;
        let totals = Attachment::new(programs, cgroup.as_fd(), &devices).and_then(|attachment| {
            attachment.review()?;
            attachment.totals()
        });
        drop(connection);
        totals.map(Some)
    });
    match attempt.join() {
        Ok(Ok(None)) => vec![Finding::bad(
            "attaching",
            Standing::Warning,
            "not tried: to make a network namespace for the trial takes CAP_SYS_ADMIN",
            "`pillion attach` does without; to try it here, check as root",
        )],
        Ok(Ok(Some(totals))) if totals.connections_refused > 0 => vec![Finding::bad(
            "attaching",
            Standing::Missing,
            "the kernel gives no memory for a connection's state",
            "raise net.core.optmem_max; Linux 6.18 and newer want a processor with CMPXCHG16B",
        )],
        Ok(Ok(Some(totals))) => {
            let attaching = Finding::ok("attaching", format!("{hook}, cgroup and TCP iterator"));
            let companions = companions::findings(&totals);
            [attaching].into_iter().chain(companions).collect()
        }
        Ok(Err(error)) => vec![failure("attaching", &error, above)],
        Err(_) => vec![Finding::bad(
            "attaching",
            Standing::Missing,
            "the trial failed",
            "report this",
        )],
    }
}

fn tun() -> Finding {
    let path = "/dev/net/tun";
    if Path::new(path).exists() {
        Finding::ok("lab", path)
    } else {
        let remedy = "modprobe tun (for `pillion-lab` alone; bundling does without)";
        Finding::bad("lab", Standing::Warning, format!("no {path}"), remedy)
    }
}

/// How a finding bears on bundling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The finding is as it should be.
    Ok,
    /// Bundling works, but not as well as it could.
    Warning,
    /// Bundling cannot work.
    Missing,
}

/// One thing that bundling needs, and whether this host has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How the finding bears on bundling.
    pub standing: Standing,
    /// What was found, in words.
    pub found: String,
    /// What the user should do, where something should be done.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            standing: Standing::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(crate) fn bad(
        name: &'static str,
        standing: Standing,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            standing,
            found: found.into(),
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

/// A warning if sockets of this host may be in a sockmap with a verdict program: the kernel hands
/// it whole packets, with what was received before (`tcp_read_skb()`). None where that cannot be
/// seen for want of CAP_SYS_ADMIN.
fn receivers() -> Option<Finding> {
    let mut programs = ProgInfoIter::default().filter(|program| program.ty == ProgramType::SkSkb);
    let name = programs.next()?.name;
    let found = format!(
        "{} (sk_skb) is loaded: sockets in its sockmap read redundant bytes twice",
        name.to_string_lossy()
    );
    let remedy = "leave connections to them alone by a rule: mode = \"leave-alone\"";
    Some(Finding::bad("receivers", Standing::Warning, found, remedy))
}
