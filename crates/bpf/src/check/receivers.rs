//! Whether a receiver on this host may read a bundle's redundant bytes twice.

use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;

use super::finding::{Finding, Standing};

/// A warning if sockets of this host may be in a sockmap with a verdict program: the kernel hands
/// it whole packets, with what was received before (`tcp_read_skb()`). None where that cannot be
/// seen for want of CAP_SYS_ADMIN.
pub(super) fn finding() -> Option<Finding> {
    let mut programs = ProgInfoIter::default().filter(|program| program.ty == ProgramType::SkSkb);
    let name = programs.next()?.name;
    let found = format!(
        "{} (sk_skb) is loaded: sockets in its sockmap read redundant bytes twice",
        name.to_string_lossy()
    );
    let remedy = "leave connections to them alone by a rule: mode = \"leave-alone\"";
    Some(Finding::bad("receivers", Standing::Warning, found, remedy))
}
