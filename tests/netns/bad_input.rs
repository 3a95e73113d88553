//! Invalid input gets one line that names it with the remedy, and exit status 2. Missing privileges
//! or kernel features give status 1.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use pillion_bpf::Companion;

use crate::common::*;

/// Returns pillion's error for invalid input, which must be one line.
fn refused(arguments: &[&str]) -> String {
    refusal(arguments, &pillion(arguments))
}

fn refused_by_lab(arguments: &[&str]) -> String {
    refusal(arguments, &lab(arguments))
}

fn refusal(arguments: &[&str], output: &Output) -> String {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(stdout(output), "", "{arguments:?}");
    said.lines().next().unwrap_or("").to_owned()
}

#[test]
fn an_unknown_device_is_named_beside_those_that_exist() {
    for arguments in [
        &["run", "--dev", "nosuch0", "--", "true"][..],
        &["attach", "--dev", "nosuch0", "--all"],
    ] {
        let said = refused(arguments);
        assert!(
            said.starts_with("pillion: no network device `nosuch0` here; there are: "),
            "{said}"
        );
        assert!(said.contains("lo"), "{said}");
    }
}

#[test]
fn what_no_bundle_can_have_is_refused_wherever_it_is_asked_for() {
    let commands = [
        (PILLION_LAB, &["demo"][..]),
        (PILLION, &["attach", "--all"]),
        (PILLION, &["run"]),
    ];
    for (program, command) in commands {
        for (option, value) in [("--max-packets", "4294967295"), ("--max-bytes", "1")] {
            let arguments = [command, &[option, value]].concat();
            let said = refusal(&arguments, &output(program, &arguments));
            assert!(
                said.contains(option) && said.contains(": expected "),
                "{said}"
            );
        }
    }
}

#[test]
fn an_unknown_network_namespace_is_named_beside_those_that_exist() {
    let attach = |namespace| refused(&["attach", "--all", "--netns", namespace]);
    let said = attach("no-such-namespace");
    let (_, there) = said
        .split_once("no network namespace `no-such-namespace`: give a name under /run/netns (")
        .unwrap_or_else(|| panic!("{said}"));
    assert!(there.starts_with("there: "), "{said}");
    // The kernel assigns no PID this high.
    assert!(attach("4194305").contains("no network namespace `4194305`"));
    assert!(attach("/no/such/file").contains("no network namespace `/no/such/file`"));
}

#[test]
fn a_file_that_is_no_network_namespace_is_named() {
    needs_root!();
    for file in ["/dev/null", "/proc/self/ns/pid"] {
        let said = refused(&["attach", "--all", "--netns", file]);
        let expected = format!("pillion: {file} is no network namespace");
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn a_device_that_no_namespace_has_is_named_beside_those_they_have() {
    needs_root!();
    let own = "/proc/self/ns/net";
    let said = refused(&["attach", "--all", "--netns", own, "--dev", "nosuch0"]);
    assert!(said.contains("no network device `nosuch0`"), "{said}");
    assert!(said.contains(&format!("lo in {own}")), "{said}");
}

#[test]
fn ports_and_networks_that_do_not_parse_are_named() {
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
        ("--rto-min", "0"),
        ("--delack-max", "200.5"),
        ("--user-timeout", "soon"),
        ("--congestion", "sixteen-letters-"),
    ] {
        let said = refused(&["attach", &format!("{option}={value}")]);
        assert!(
            said.contains(value) && said.contains(option),
            "{option} {value}: {said}"
        );
    }
}

#[test]
fn options_that_have_no_effect_are_refused() {
    let said = refused(&["attach", "--all", "--target", "1"]);
    assert_eq!(
        said,
        "pillion: --target is for --level adaptive: give that, too, or leave it out"
    );
    assert!(refused(&["attach", "--all", "--netns", ""]).contains("no network namespace ``"));
}

#[test]
fn times_between_samples_that_cannot_be_are_refused() {
    for interval in ["0", "0.5", "86400001", "99999999999999999999", "NaN"] {
        let said = refused_by_lab(&["sockets", "--interval", interval]);
        assert!(said.contains("milliseconds, 1 to 86400000"), "{said}");
    }
    let said = refused_by_lab(&["sockets", "--interval", "20000", "--duration", "1"]);
    assert!(
        said.contains("--duration of 1s is shorter than the --interval of 20s"),
        "{said}"
    );
}

#[test]
fn more_ports_than_the_kernels_table_has_rows_are_refused_by_a_dry_run() {
    let ports: Vec<_> = (1..=65).map(|port| format!("--port={port}")).collect();
    let mut arguments = vec!["attach", "--dry-run"];
    arguments.extend(ports.iter().map(String::as_str));
    let said = refused(&arguments);
    assert!(said.contains("the rules take 65 rows of 64"), "{said}");
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_named_beside_those_it_offers() {
    for arguments in [
        &["run", "--congestion", "nosuch", "--", "true"][..],
        &["attach", "--congestion", "nosuch", "--all"],
    ] {
        let said = refused(arguments);
        let (_, offered) = said
            .split_once("no congestion control `nosuch`; the kernel offers: ")
            .unwrap_or_else(|| panic!("{said}"));
        assert!(offered.contains("reno"), "{said}");
    }
}

#[test]
fn to_attach_and_leave_all_connections_alone_is_refused() {
    let said = refused(&["attach", "--dev", "lo", "--otherwise", "leave-alone"]);
    assert_eq!(
        said,
        "pillion: --otherwise leave-alone leaves all alone: choose connections with --port, --peer, \
         --cgroup or --container"
    );
}

#[test]
fn run_wants_a_command() {
    assert!(refused(&["run"]).contains("required"));
}

#[test]
fn values_of_traffic_and_lab_that_cannot_be_are_refused() {
    let to = ["traffic", "send", "--to", "127.0.0.1:9"];
    let size = refused_by_lab(&[&to[..], &["--size", "0.5"]].concat());
    assert!(
        size.contains("give 1 to"),
        "the least size is named: {size}"
    );
    assert!(refused_by_lab(&[&to[..], &["--itt", "0"]].concat()).contains("above 0"));
    assert!(refused_by_lab(&[&to[..], &["--itt", "0.0005"]].concat()).contains("1 us"));
    let think = refused_by_lab(&[&to[..], &["--think", "5"]].concat());
    assert!(think.contains("--kind request-response"), "{think}");
    refused_by_lab(&[&to[..], &["--streams", "0"]].concat());
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let demo = ["demo", "--report", report.to_str().unwrap(), "--loss"];
    for loss in ["101", "200"] {
        assert!(refused_by_lab(&[&demo[..], &[loss]].concat()).contains("per cent, 0 to 100"));
    }
    for rtt in ["1e9", "1e99", "-1"] {
        let said = refused_by_lab(&["demo", &format!("--rtt={rtt}")]);
        assert!(said.contains("milliseconds, 0 to 120000"), "{said}");
    }
    let store = folder.path().to_str().unwrap();
    let nothing = refused_by_lab(&["compare", "--store", store, "loss"]);
    assert!(nothing.contains("loss: no experiment or run"), "{nothing}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_done() {
    let output = pillion(&[
        "run",
        "--dev",
        "lo",
        "--stats",
        "/nonexistent/stats",
        "--",
        "echo",
        "began",
    ]);
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("pillion: write --stats /nonexistent/stats: "));
}

#[test]
fn without_privilege_the_line_says_which_is_needed() {
    needs_root!();
    for arguments in [
        &["run", "--dev", "lo", "--", "echo", "began"][..],
        &["attach", "--dev", "lo", "--all"],
    ] {
        let output = unprivileged(PILLION, arguments).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(stdout(&output), "");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("run as root") && said.contains("CAP_BPF"),
            "{said}"
        );
    }
}

#[test]
fn a_demo_without_privilege_says_so_and_writes_nothing() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let arguments = ["demo", "--report", report.to_str().unwrap()];
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
fn a_dry_run_fails_where_the_work_would() {
    needs_root!();
    let dry_run = ["attach", "--dry-run", "--dev", "lo", "--all"];
    let output = unprivileged(PILLION, &dry_run).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("CAP_BPF"), "{}", stderr(&output));
    let output = pillion(&[&dry_run[..], &["--stats", "/nonexistent/stats"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).starts_with("pillion: write --stats /nonexistent/stats: "));
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let output = pillion(&[&dry_run[..], &["--stats", stats.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stats.exists(), "a dry run writes nothing");
    let output = pillion(&[&dry_run[..], &["--metrics", "unix:/nonexistent/metrics"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).starts_with("pillion: serve --metrics unix:/nonexistent/metrics: "));
}

#[test]
fn a_dash_is_no_name_of_a_file_of_results() {
    needs_root!();
    for (program, results) in [
        (
            PILLION,
            &["attach", "--dry-run", "--all", "--stats", "-"][..],
        ),
        (PILLION, &["advise", "--duration", "1", "--html", "-"]),
        (
            PILLION,
            &["advise", "--duration", "1", "--write-config", "-"],
        ),
        (PILLION_LAB, &["sockets", "--duration", "1", "--csv", "-"]),
    ] {
        let output = output(program, results);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let line = stderr(&output);
        assert!(
            line.contains(" -: is no name of a file here; /dev/stdout"),
            "{line}"
        );
    }
}

#[test]
fn without_the_privilege_to_enter_a_namespace_the_line_says_which_is_needed() {
    needs_root!();
    let arguments = ["attach", "--all", "--netns", "/proc/self/ns/net"];
    let output = unprivileged(PILLION, &arguments).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn check_says_what_is_missing_and_fails() {
    needs_root!();
    let good = pillion(&["check"]);
    assert!(good.status.success(), "{}", stdout(&good));
    for companion in Companion::ALL {
        let told = stdout(&good);
        let mut lines = told.lines().filter(|line| line.contains(companion.name()));
        assert!(lines.any(|line| !line.contains("refused")), "{told}");
    }
    let output = unprivileged(PILLION, &["check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stdout(&output);
    let line = said
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
fn output_that_nobody_reads_is_no_failure() {
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
fn an_experiment_that_comes_through_a_pipe_is_not_run() {
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
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/dev/stdin: its runs are kept under"),
        "{said}"
    );
}

#[test]
fn folders_that_no_run_can_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.toml");
    std::fs::write(&file, "duration = 1\n[group.thin]\n").unwrap();
    let said = |run: &str| {
        let file = file.to_str().unwrap();
        refused_by_lab(&["run", "--engine", "live", file, "--folder", run])
    };
    for nameless in ["..", "/"] {
        let said = said(nameless);
        assert!(
            said.contains(&format!("--folder {nameless} has no name")),
            "{said}"
        );
    }
    let there = folder.path().to_str().unwrap();
    let said = said(there);
    assert!(
        said.contains("something else is there, which is never overwritten"),
        "{said}"
    );
    assert!(file.is_file());
}
