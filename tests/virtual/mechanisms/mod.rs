//! The lab kernel's mechanisms against their specifications: that kernel's TCP and a scripted peer.
//! The tests run inside the kernel, one after the other, sorted by name.

mod common;
mod early_retransmit;
mod fack;
mod forward_retransmission;
mod rto_restart;
mod smart_framing;
mod thin_dupack;
mod tlp_draft;
mod window_growth;

use crate::common::{needs_kernel, run_tests_inside};

#[test]
fn mechanisms_follow_specifications_inside_lab_kernel() {
    needs_kernel!();
    run_tests_inside("mechanisms::");
}
