//! The lab kernel's mechanisms against their specifications: TCP of that kernel, and a
//! scripted peer. They run inside, one after the other, in the order of their names.

mod common;
mod early_retransmit;
mod rto_restart;
mod smart_framing;
mod thin_dupack;
mod window_growth;

use crate::common::{boot, needs_kernel, stderr, stdout};

#[test]
fn each_does_in_the_lab_kernel_what_its_specification_says() {
    needs_kernel!();
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let output = boot(
        &[],
        &[this, "--ignored", "--test-threads=1", "mechanisms::"],
    )
    .output()
    .unwrap();
    let report = stdout(&output);
    print!("{report}");
    assert!(output.status.success(), "{}{}", report, stderr(&output));
    assert!(!report.contains("running 0 tests"), "{report}");
}
