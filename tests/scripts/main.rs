//! The scripts that the Makefile calls.

use std::process::{Command, Stdio};

/// Runs `scripts/count-tests` with a command that prints `text` and exits with `status`. Returns the
/// script's exit status and output.
fn count(text: &str, status: i32) -> (Option<i32>, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/count-tests");
    let print = r#"printf %s "$1"; exit "$2""#;
    let mut command = Command::new(script);
    command.args(["sh", "-c", print, "sh", text, &status.to_string()]);
    let output = command.stdin(Stdio::null()).output().expect("a shell");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    (output.status.code(), printed)
}

fn last_line(printed: &str) -> &str {
    printed.lines().last().unwrap_or_default()
}

const PASSED: &str = "
running 4 tests
....
successes:

---- wire::one stdout ----
left out without root: wire::one

---- wire::two stdout ----
left out of a trace, but it ran

---- wire::three stdout ----
running 1 test
error: printed by a test
failures:
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
running 2 tests

successes:
    wire::one
    wire::two
    wire::three

test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.01s

";

const FAILED: &str = "
running 2 tests
.F
successes:

successes:
    wire::five

failures:

---- wire::six stdout ----
left out: printed by a failed test

failures:
    wire::six

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p wire --lib`
";

#[test]
fn passed_and_skipped_tests_are_counted() {
    let (status, printed) = count(PASSED, 0);
    assert_eq!(status, Some(0), "{printed}");
    assert_eq!(last_line(&printed), "3 passed, 0 failed, 3 skipped");
    assert!(printed.contains("skipped 1: without root\n"), "{printed}");
    assert!(!printed.contains("wire::one"), "{printed}");
}

#[test]
fn skipped_prefix_counts_like_left_out() {
    let text = PASSED.replace("left out without root", "skipped without root");
    let (status, printed) = count(&text, 0);
    assert_eq!(status, Some(0), "{printed}");
    assert_eq!(last_line(&printed), "3 passed, 0 failed, 3 skipped");
    assert!(printed.contains("skipped 1: without root\n"), "{printed}");
}

#[test]
fn failed_tests_are_counted_and_their_output_printed() {
    let (status, printed) = count(&format!("{PASSED}{FAILED}{PASSED}"), 101);
    assert_eq!(status, Some(101), "{printed}");
    assert_eq!(last_line(&printed), "7 passed, 1 failed, 6 skipped");
    assert!(printed.contains("---- wire::six stdout ----"), "{printed}");
}

#[test]
fn executable_without_result_counts_as_failed() {
    let crash = "\nrunning 3 tests\nerror: test failed, to rerun pass `--test wire`\n";
    let (status, printed) = count(&format!("{crash}{PASSED}"), 101);
    assert_eq!(status, Some(101), "{printed}");
    assert_eq!(last_line(&printed), "3 passed, 1 failed, 3 skipped");
    let (_, printed) = count(&format!("{PASSED}{crash}"), 101);
    assert_eq!(last_line(&printed), "3 passed, 1 failed, 3 skipped");
}

#[test]
fn compile_error_counts_as_failed() {
    let (status, printed) = count("error: could not compile `wire`\n", 101);
    assert_eq!(status, Some(101), "{printed}");
    assert_eq!(last_line(&printed), "0 passed, 1 failed, 0 skipped");
}

#[test]
fn failed_test_never_exits_with_success() {
    let (status, _) = count(FAILED, 0);
    assert_eq!(status, Some(1));
}

#[test]
fn generated_traces_match_their_commands() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/traces");
    let readme = std::fs::read_to_string(format!("{folder}/README.md")).expect("the folder's page");
    let commands = readme
        .lines()
        .filter_map(|line| line.split_once(" > experiments/traces/"));
    let mut names = Vec::new();
    for (command, name) in commands {
        let arguments = command.split(' ').skip(1);
        let output = Command::new(format!("{folder}/generate"))
            .args(arguments)
            .output()
            .expect("a shell");
        let stored = std::fs::read(format!("{folder}/{name}")).expect("the trace");
        assert!(output.stdout == stored, "{command}");
        names.push(name);
    }
    assert_eq!(names, ["generated.down", "generated.up"]);
}
