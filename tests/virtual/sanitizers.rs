//! Each of what `lab-kernel/sanitizers` switches on ends the kernel at the fault that it is for,
//! and the line that pillion ends with names it. The faults are lkdtm's
//! (Documentation/fault-injection/provoke-crashes.rst in the kernel's source).

use std::path::Path;

use pillion_lab::engine::LabKernel;

use crate::common::*;

/// False, with a line that says so, where there is no kernel with sanitizers.
fn is_built() -> bool {
    let kernel = LabKernel::find(Some(Path::new("sanitizing")));
    if let Err(error) = &kernel {
        println!("left out: {error} with LAB_KERNEL=--sanitize");
    }
    kernel.is_ok()
}

/// What pillion says when a shell's lines break the kernel down.
fn end_of(lines: &str) -> String {
    let options = ["--kernel", "sanitizing", "--tool", "sleep"];
    let output = boot(&options, &["sh", "-c", lines]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    stderr(&output)
}

/// The end by one of lkdtm's faults.
fn end_by(fault: &str) -> String {
    end_of(&format!(
        "echo {fault} > /sys/kernel/debug/provoke-crash/DIRECT; sleep 1"
    ))
}

#[test]
fn every_fault_is_found_and_named() {
    if !is_built() {
        return;
    }
    for (fault, found) in [
        ("READ_AFTER_FREE", "BUG: KASAN: slab-use-after-free"),
        ("SLAB_LINEAR_OVERFLOW", "BUG: KASAN: slab-out-of-bounds"),
        (
            "VMALLOC_LINEAR_OVERFLOW",
            "BUG: KASAN: vmalloc-out-of-bounds",
        ),
        ("ARRAY_BOUNDS", "UBSAN: array-index-out-of-bounds"),
        (
            "RECURSIVE_LOCK",
            "WARNING: possible recursive locking detected",
        ),
        (
            "SPINLOCKUP",
            "BUG: sleeping function called from invalid context",
        ),
        ("CORRUPT_LIST_ADD", "__list_add_valid"),
        ("REFCOUNT_INC_OVERFLOW", "WARNING: "),
        ("USERCOPY_SLAB_SIZE_TO", "usercopy_abort"),
        ("WARNING", "WARNING: "),
        ("BUG", "BUG"),
    ] {
        let line = end_by(fault);
        assert!(line.contains(found), "{fault}: {line}");
    }
}
