//! What pillion may do once it is at work: no more than following takes.

use caps::{CapSet, Capability, CapsHashSet};
use pillion_cli::print::say_line;

/// To attach to devices that come.
const TO_FOLLOW: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN];

/// To enter the network namespaces that are named, and those of processes.
const TO_ENTER: [Capability; 2] = [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE];

/// To read and write files that another user's folder holds.
const FOR_FILES: [Capability; 2] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// To load programs, which a successor does.
const TO_SUCCEED: Capability = Capability::CAP_PERFMON;

/// Gives up, for good, what neither this process nor a successor needs from here on.
pub fn keep_what_following_takes(enters_namespaces: bool, has_files: bool) {
    let mut effective = CapsHashSet::from(TO_FOLLOW);
    if enters_namespaces {
        effective.extend(TO_ENTER);
    }
    if has_files {
        effective.extend(FOR_FILES);
    }
    let mut permitted = effective.clone();
    permitted.insert(TO_SUCCEED);
    // Who may not change the bounding set has little to lose.
    let others = caps::read(None, CapSet::Bounding).unwrap_or_default();
    for other in others.difference(&permitted) {
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    keep(&effective, &permitted);
}

/// Leaves to a thread of this process what reading takes.
pub fn only_read() {
    // Kernels before 5.19 want it of all that read maps.
    let reading = CapsHashSet::from([Capability::CAP_BPF]);
    keep(&reading, &reading);
}

fn keep(effective: &CapsHashSet, permitted: &CapsHashSet) {
    let kept = || {
        let has = caps::read(None, CapSet::Permitted)?;
        let of = |set: &CapsHashSet| set.intersection(&has).copied().collect();
        caps::set(None, CapSet::Effective, &of(effective))?;
        caps::set(None, CapSet::Permitted, &of(permitted))
    };
    if let Err(error) = kept() {
        say_line!("pillion: keeps all capabilities: {error}");
    }
}
