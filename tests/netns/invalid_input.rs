//! Invalid input gets one line that names it with the remedy, and exit status 2. Missing privileges
//! or kernel features give status 1.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use pillion_bpf::TcpOption;

use crate::common::*;

/// Returns pillion's error for invalid input, which must be one line.
fn rejection(arguments: &[&str]) -> String {
    rejection_line(arguments, &pillion(arguments))
}

fn lab_rejection(arguments: &[&str]) -> String {
    rejection_line(arguments, &lab(arguments))
}

fn rejection_line(arguments: &[&str], output: &Output) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert_eq!(stdout(output), "", "{arguments:?}");
    message.lines().next().unwrap_or("").to_owned()
}

#[test]
fn unknown_device_is_reported_with_existing_devices() {
    for arguments in [
        &["run", "--dev", "nosuch0", "--", "true"][..],
        &["attach", "--dev", "nosuch0", "--all"],
    ] {
        let message = rejection(arguments);
        assert!(
            message.starts_with("pillion: error: no network device `nosuch0`; available: "),
            "{message}"
        );
        assert!(message.contains("lo"), "{message}");
    }
}

#[test]
fn invalid_bundle_limits_are_rejected_by_all_commands() {
    let commands = [
        (PILLION_LAB, &["demo"][..]),
        (PILLION, &["attach", "--all"]),
        (PILLION, &["run"]),
    ];
    for (program, command) in commands {
        for (option, value) in [("--max-packets", "4294967295"), ("--max-bytes", "1")] {
            let arguments = [command, &[option, value]].concat();
            let message = rejection_line(&arguments, &output(program, &arguments));
            assert!(
                message.contains(option) && message.contains(": expected "),
                "{message}"
            );
        }
    }
}

#[test]
fn caps_of_zero_or_without_unit_are_rejected() {
    for command in [&["run", "--", "true"][..], &["attach", "--all"]] {
        for (option, value, expected) in [
            (
                "--max-redundancy-rate",
                "0",
                "expected a number above 0 and a unit",
            ),
            (
                "--max-redundancy-rate",
                "1MB",
                "expected a number above 0 and a unit",
            ),
            ("--max-redundancy-rate", "1bit", "expected 8bit to 1000gbit"),
            (
                "--max-copy-rate",
                "0",
                "expected 1 to 1000000000 per second",
            ),
            (
                "--max-copy-rate",
                "many",
                "expected 1 to 1000000000 per second",
            ),
        ] {
            let arguments = [&command[..1], &[option, value], &command[1..]].concat();
            let message = rejection(&arguments);
            assert!(
                message.contains(option) && message.contains(expected),
                "{message}"
            );
        }
    }
}

#[test]
fn unknown_namespace_is_reported_with_existing_namespaces() {
    let attach = |namespace| rejection(&["attach", "--all", "--netns", namespace]);
    let message = attach("no-such-namespace");
    let (_, existing) = message
        .split_once("no network namespace `no-such-namespace`: give a name under /run/netns (")
        .unwrap_or_else(|| panic!("{message}"));
    assert!(existing.starts_with("available: "), "{message}");
    assert!(
        existing.ends_with(") or a file such as /proc/PID/ns/net"),
        "{message}"
    );
    // The kernel assigns no PID this high.
    assert!(attach("4194305").contains("no network namespace `4194305`"));
    assert!(attach("/no/such/file").contains("no network namespace `/no/such/file`"));
}

#[test]
fn file_that_is_no_namespace_is_rejected() {
    needs_root!();
    for file in ["/dev/null", "/proc/self/ns/pid"] {
        let message = rejection(&["attach", "--all", "--netns", file]);
        let expected = format!("pillion: error: {file} is not a network namespace");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn device_missing_in_all_namespaces_is_reported() {
    needs_root!();
    let own = "/proc/self/ns/net";
    let message = rejection(&["attach", "--all", "--netns", own, "--dev", "nosuch0"]);
    assert!(message.contains("no network device `nosuch0`"), "{message}");
    assert!(message.contains(&format!("lo in {own}")), "{message}");
}

#[test]
fn invalid_option_values_are_reported() {
    for (option, value) in [
        ("--port", "0"),
        ("--port", "65536"),
        ("--port", "http"),
        ("--peer", "10.0.0.0/33"),
        ("--peer", "host.example"),
        ("--thin", "sometimes"),
        ("--thin", "spifl:0"),
        ("--max-packets", "-1"),
        ("--max-packets", "4294967295"),
        ("--max-bytes", "1"),
        ("--rto-min", "0ms"),
        ("--delack-max", "200.5ms"),
        ("--user-timeout", "soon"),
        ("--congestion", "sixteen-letters-"),
    ] {
        let message = rejection(&["attach", &format!("{option}={value}")]);
        assert!(
            message.contains(value) && message.contains(option),
            "{option} {value}: {message}"
        );
    }
}

#[test]
fn attach_rejects_options_without_effect() {
    let fixed = ["attach", "--all", "--target", "1%", "--max-packets", "1"];
    assert_eq!(
        rejection(&fixed),
        "pillion: error: --target needs --level auto: add that, or remove --target"
    );
    for (options, needed) in [
        (["--copies-when", "isolated"].as_slice(), "--copies 1"),
        (
            &["--copy-delay", "15ms", "--max-packets", "1"],
            "--copies 1",
        ),
        (&["--level", "none"], "--copies 1"),
        (
            &["--level", "none", "--copies", "1", "--max-packets", "2"],
            "--level fixed",
        ),
    ] {
        let message = rejection(&[&["attach", "--all"], options].concat());
        assert!(message.contains(needed), "{options:?}: {message}");
    }
    assert!(rejection(&["attach", "--all", "--copies", "3"]).contains("expected 0, 1 or 2 copies"));
    for delay in ["0ms", "201ms", "15"] {
        let message = rejection(&["attach", "--all", "--copies", "1", "--copy-delay", delay]);
        assert!(message.contains(delay), "{message}");
    }
    assert!(rejection(&["attach", "--all", "--netns", ""]).contains("no network namespace ``"));
}

#[test]
fn invalid_sample_intervals_are_rejected() {
    for interval in [
        "0ms",
        "0.5ms",
        "86400001ms",
        "99999999999999999999ms",
        "NaN",
    ] {
        let message = lab_rejection(&["sockets", "--interval", interval]);
        assert!(message.contains("invalid "), "{message}");
    }
    let message = lab_rejection(&["sockets", "--interval", "20000ms", "--duration", "1s"]);
    assert!(
        message.contains("--duration of 1s is shorter than the --interval of 20s"),
        "{message}"
    );
}

#[test]
fn dry_run_rejects_rules_beyond_table_capacity() {
    let ports: Vec<_> = (1..=65).map(|port| format!("--port={port}")).collect();
    let mut arguments = vec!["attach", "--dry-run"];
    arguments.extend(ports.iter().map(String::as_str));
    let message = rejection(&arguments);
    assert!(
        message.ends_with(
            "the rules require 65 rows, but the kernel's table has 64: one for each combination of \
             a rule's ports and peers; join neighbouring ports into ranges, and peers into networks"
        ),
        "{message}"
    );
}

#[test]
fn unknown_congestion_control_is_reported_with_available_ones() {
    for arguments in [
        &["run", "--congestion", "nosuch", "--", "true"][..],
        &["attach", "--congestion", "nosuch", "--all"],
    ] {
        let message = rejection(arguments);
        let (_, offered) = message
            .split_once("no congestion control `nosuch`; the kernel offers: ")
            .unwrap_or_else(|| panic!("{message}"));
        assert!(offered.contains("reno"), "{message}");
    }
}

#[test]
fn attach_that_excludes_all_connections_is_rejected() {
    let message = rejection(&["attach", "--dev", "lo", "--default-mode", "never"]);
    assert_eq!(
        message,
        "pillion: error: --default-mode never without a selection covers nothing: select connections with \
         --port, --peer, --cgroup or --container"
    );
}

#[test]
fn run_requires_command() {
    assert!(rejection(&["run"]).contains("required"));
}

#[test]
fn lab_rejects_invalid_values() {
    let to = ["traffic", "send", "--to", "127.0.0.1:9"];
    let size = lab_rejection(&[&to[..], &["--size", "0.5"]].concat());
    assert!(
        size.ends_with("invalid message size 0.5 B: expected 1 to 1048576 B"),
        "the least size is named: {size}"
    );
    assert!(lab_rejection(&[&to[..], &["--itt", "0ms"]].concat()).contains("above 0"));
    assert!(lab_rejection(&[&to[..], &["--itt", "0.0005ms"]].concat()).contains("1 us"));
    let think = lab_rejection(&[&to[..], &["--think", "5ms"]].concat());
    assert!(think.contains("--kind request-response"), "{think}");
    lab_rejection(&[&to[..], &["--streams", "0"]].concat());
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let demo = ["demo", "--html", report.to_str().unwrap(), "--loss"];
    for loss in ["101%", "200%"] {
        assert!(lab_rejection(&[&demo[..], &[loss]].concat()).contains("expected 0% to 100%"));
    }
    for rtt in ["1e9ms", "1e99ms", "-1ms"] {
        let message = lab_rejection(&["demo", &format!("--rtt={rtt}")]);
        assert!(message.contains("invalid "), "{message}");
    }
    let store = folder.path().to_str().unwrap();
    let unknown_run = lab_rejection(&["compare", "--store", store, "loss"]);
    assert!(
        unknown_run.contains("unknown experiment or run `loss`"),
        "{unknown_run}"
    );
}

#[test]
fn unwritable_stats_file_is_rejected_before_command_starts() {
    let output = pillion(&[
        "run",
        "--dev",
        "lo",
        "--stats",
        "/nonexistent/stats",
        "--",
        "echo",
        "started",
    ]);
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("pillion: error: write --stats /nonexistent/stats: "));
}

#[test]
fn missing_privilege_is_named_in_one_line() {
    needs_root!();
    for arguments in [
        &["run", "--dev", "lo", "--", "echo", "started"][..],
        &["attach", "--dev", "lo", "--all"],
    ] {
        let output = unprivileged(PILLION, arguments).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(stdout(&output), "");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(
            message.contains("run as root") && message.contains("CAP_BPF"),
            "{message}"
        );
    }
}

#[test]
fn demo_without_privilege_fails_and_writes_nothing() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let arguments = ["demo", "--html", report.to_str().unwrap()];
    let output = unprivileged(PILLION_LAB, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the lab needs root"),
        "{}",
        stderr(&output)
    );
    assert!(!report.exists());
}

#[test]
fn dry_run_fails_where_attach_fails() {
    needs_root!();
    let dry_run = ["attach", "--dry-run", "--dev", "lo", "--all"];
    let output = unprivileged(PILLION, &dry_run).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("CAP_BPF"), "{}", stderr(&output));
    let output = pillion(&[&dry_run[..], &["--stats", "/nonexistent/stats"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).starts_with("pillion: error: write --stats /nonexistent/stats: "));
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let output = pillion(&[&dry_run[..], &["--stats", stats.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stats.exists(), "a dry run writes nothing");
    let output = pillion(&[&dry_run[..], &["--metrics", "unix:/nonexistent/metrics"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stderr(&output).starts_with("pillion: error: serve --metrics unix:/nonexistent/metrics: ")
    );
}

#[test]
fn dash_is_rejected_as_output_file() {
    needs_root!();
    for (program, results) in [
        (
            PILLION,
            &["attach", "--dry-run", "--all", "--stats", "-"][..],
        ),
        (PILLION, &["advise", "--duration", "1s", "--html", "-"]),
        (
            PILLION,
            &["advise", "--duration", "1s", "--write-config", "-"],
        ),
        (PILLION_LAB, &["sockets", "--duration", "1s", "--csv", "-"]),
    ] {
        let output = output(program, results);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let line = stderr(&output);
        assert!(
            line.contains(" -: expected a file name; use /dev/stdout"),
            "{line}"
        );
    }
}

#[test]
fn missing_privilege_to_enter_namespace_is_named() {
    needs_root!();
    let arguments = ["attach", "--all", "--netns", "/proc/self/ns/net"];
    let output = unprivileged(PILLION, &arguments).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("CAP_SYS_ADMIN"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn check_without_privilege_reports_missing_and_fails() {
    needs_root!();
    let privileged = pillion(&["check"]);
    assert!(privileged.status.success(), "{}", stdout(&privileged));
    for tcp_option in TcpOption::ALL {
        let report = stdout(&privileged);
        let mut lines = report
            .lines()
            .filter(|line| line.contains(tcp_option.name()));
        assert!(lines.any(|line| !line.contains("refused")), "{report}");
    }
    let output = unprivileged(PILLION, &["check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = stdout(&output);
    let line = message
        .lines()
        .find(|line| line.contains("privilege"))
        .unwrap();
    assert!(
        line.starts_with("MISSING") && line.contains("CAP_BPF") && line.contains("->"),
        "{line}"
    );
}

/// Builds a command that runs as root without any capability.
fn unprivileged(program: &str, arguments: &[&str]) -> Command {
    const LAST_CAPABILITY: i32 = 63;
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: only system calls are made. They fail only for capabilities that do not exist.
    unsafe {
        command.pre_exec(|| {
            for capability in 0..=LAST_CAPABILITY {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
    command
}

#[test]
fn closed_output_pipe_is_no_error() {
    for (program, arguments) in [
        (PILLION_LAB, &["traffic", "profiles"][..]),
        (PILLION, &["check"]),
        (PILLION, &["flows"]),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(program)
            .args(arguments)
            .stdout(writer)
            .output();
        let output = output.expect("pillion runs");
        assert_eq!(stderr(&output), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
    }
}

/// The run's folder would contain an empty file instead of the experiment.
#[test]
fn experiment_from_pipe_is_rejected() {
    let mut child = Command::new(PILLION_LAB)
        .args(["run", "--engine", "live", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pillion runs");
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"duration = 1\n[group.thin]\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("/dev/stdin: runs are stored under the file's name; give a regular file"),
        "{message}"
    );
}

#[test]
fn invalid_run_folders_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.toml");
    std::fs::write(&file, "duration = 1\n[group.thin]\n").unwrap();
    let message = |run: &str| {
        let file = file.to_str().unwrap();
        lab_rejection(&["run", "--engine", "live", file, "--folder", run])
    };
    for nameless in ["..", "/"] {
        let message = message(nameless);
        assert!(
            message.ends_with(&format!(
                "--folder {nameless} does not end in a name for the run; give another folder"
            )),
            "{message}"
        );
    }
    let existing = folder.path().to_str().unwrap();
    let message = message(existing);
    assert!(
        message.contains("the folder has other files, which are never overwritten"),
        "{message}"
    );
    assert!(file.is_file());
}
