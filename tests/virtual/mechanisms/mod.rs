//! The lab kernel's mechanisms against their specifications: TCP of that kernel, and a
//! scripted peer. They run inside, one after the other, in the order of their names.

mod common;
mod early_retransmit;
mod fack;
mod forward_retransmission;
mod rto_restart;
mod smart_framing;
mod thin_dupack;
mod tlp_draft;
mod window_growth;

use crate::common::{needs_kernel, test_inside};

#[test]
fn each_does_in_the_lab_kernel_what_its_specification_says() {
    needs_kernel!();
    test_inside("mechanisms::");
}
