//! Promises of the lab kernel's patches to any program. The tests run inside the kernel.

mod memory;
#[cfg(target_arch = "x86_64")]
mod registers;

use crate::common::{needs_kernel, run_tests_inside};

#[test]
fn patches_hold_inside_lab_kernel() {
    needs_kernel!();
    run_tests_inside("kernel::");
}
