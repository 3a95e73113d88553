//! Every check in `lab-kernel/sanitizers` stops the kernel at its fault, and pillion's error message
//! names the fault. lkdtm provokes the faults
//! (Documentation/fault-injection/provoke-crashes.rst in the kernel's source).

use std::path::Path;

use pillion_lab::engine::LabKernel;

use crate::common::*;

/// Returns true if a kernel with sanitizers is built; otherwise prints that the test is skipped.
fn is_built() -> bool {
    let kernel = LabKernel::find(Some(Path::new("sanitizing")));
    if let Err(error) = &kernel {
        println!("skipped: {error} with LAB_KERNEL=--sanitize");
    }
    kernel.is_ok()
}

/// Returns pillion's error output after a shell script crashes the kernel.
fn crash_message(script: &str) -> String {
    let options = ["--kernel", "sanitizing", "--tool", "sleep"];
    let output = boot(&options, &["sh", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    stderr(&output)
}

/// Returns pillion's error output after one of lkdtm's faults.
fn fault_message(fault: &str) -> String {
    crash_message(&format!(
        "echo {fault} > /sys/kernel/debug/provoke-crash/DIRECT; sleep 1"
    ))
}

#[test]
fn each_sanitizer_reports_its_fault() {
    if !is_built() {
        return;
    }
    for (fault, expected) in [
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
        let line = fault_message(fault);
        assert!(line.contains(expected), "{fault}: {line}");
    }
}
