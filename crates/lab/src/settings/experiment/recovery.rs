//! What kernels of then did by default about losses, as far as mechanisms make it up.

use super::{Mechanism, Mechanisms};

/// The word for the kernel as it is.
const TODAY: &str = "today";

/// Kernels, and what the columns of [`SETTINGS`] are.
const KERNELS: [&str; 3] = ["linux-2.6.34", "linux-3.12", "linux-3.16"];

/// docs/mechanisms.md has the sources, and tells what is not as it was.
const SETTINGS: [(Mechanism, [&str; 3]); 9] = [
    (Mechanism::Tlp, ["off", "on", "on"]),
    (Mechanism::TlpDraft, ["off", "on", "on"]),
    (Mechanism::Rack, ["off", "off", "off"]),
    (Mechanism::Frto, ["on", "on", "on"]),
    (Mechanism::LinearSynTimeouts, ["off", "off", "off"]),
    (
        Mechanism::EarlyRetransmit,
        ["off", "linux-3.10", "linux-3.10"],
    ),
    (Mechanism::Fack, ["on", "on", "on"]),
    (Mechanism::ForwardRetransmission, ["on", "on", "on"]),
    (Mechanism::UnfilledWindowGrowth, ["on", "on", "off"]),
];

/// Segments that connections began with: three full ones up to Linux 2.6.38 (RFC 3390); those of
/// later kernels are as today's.
const INITIAL_WINDOWS: [Option<u32>; 3] = [Some(3), None, None];

/// All that may be asked for.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KERNELS.into_iter().chain([TODAY])
}

/// What mechanisms are set to where recovery is to be that of a kernel; `None` if no such kernel
/// is known.
pub(super) fn of(kernel: &str) -> Option<Mechanisms> {
    if kernel == TODAY {
        return Some(Mechanisms::default());
    }
    let column = KERNELS.iter().position(|known| *known == kernel)?;
    let settings = SETTINGS.iter().map(|(mechanism, words)| {
        let setting = mechanism.setting(words[column]);
        (*mechanism, setting.expect("a setting of this mechanism"))
    });
    Some(Mechanisms::of(settings, INITIAL_WINDOWS[column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_sets_mechanisms_to_what_they_can_be_set_to() {
        for name in names() {
            let settings = of(name).unwrap();
            assert_eq!(settings == Mechanisms::default(), name == TODAY);
        }
        assert!(of("linux-2.4").is_none());
    }
}
