//! What the tests share.

use std::process::{Command, Output, Stdio};

use pillion_lab::engine::LabKernel;

/// The binary under test.
pub const PILLION: &str = env!("CARGO_BIN_EXE_pillion");

/// False, with a line that says so, where there is no lab kernel.
pub fn has_kernel(test: &str) -> bool {
    let kernel = LabKernel::find(None);
    if let Err(error) = &kernel {
        println!("left out: {test}: {error}");
    }
    kernel.is_ok()
}

macro_rules! needs_kernel {
    () => {
        if !crate::common::has_kernel(std::thread::current().name().unwrap_or("a test")) {
            return;
        }
    };
}
pub(crate) use needs_kernel;

/// `pillion lab boot` with its options and the program's arguments.
pub fn boot(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(PILLION);
    command
        .args(["lab", "boot"])
        .args(options)
        .arg("--")
        .args(program)
        .stdin(Stdio::null());
    command
}

/// What a shell's lines write inside, which must not fail.
pub fn shell(options: &[&str], lines: &str) -> String {
    let output = boot(options, &["sh", "-ec", lines]).output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
