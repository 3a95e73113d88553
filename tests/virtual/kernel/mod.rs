//! What the lab kernel's own patches promise to any program. The tests run inside.

mod memory;
#[cfg(target_arch = "x86_64")]
mod registers;

use crate::common::{needs_kernel, test_inside};

#[test]
fn does_for_programs_what_its_patches_promise() {
    needs_kernel!();
    test_inside("kernel::");
}
