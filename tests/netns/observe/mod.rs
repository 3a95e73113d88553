//! `pillion advise` and `pillion trial` on real streams.

mod advise;
mod trial;

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;

/// Sends streams of small messages, one every 20 ms; the receiver verifies every byte.
fn send(pair: &HostPair, port: u16, streams: &str, seconds: &str) {
    send_every(pair, "20", port, streams, seconds);
}

/// Like [`send`], with another interval between messages in milliseconds.
fn send_every(pair: &HostPair, itt: &str, port: u16, streams: &str, seconds: &str) {
    send_with(
        pair,
        &["--itt", &format!("{itt}ms")],
        port,
        streams,
        seconds,
    );
}

/// Like [`send`], with options of the sender.
fn send_with(pair: &HostPair, options: &[&str], port: u16, streams: &str, seconds: &str) {
    let address = format!("10.77.0.2:{port}");
    let receive = [
        "traffic",
        "receive",
        "--listen",
        &address,
        "--streams",
        streams,
    ];
    let mut receiver = spawn_quiet(lab_in(&pair.receiver.namespace, &receive));
    await_listening(&pair.receiver.namespace, port);
    let send = [
        ["traffic", "send"],
        ["--to", &address],
        ["--streams", streams],
        ["--duration", &format!("{seconds}s")],
    ];
    let send = [send.as_flattened(), options].concat();
    let mut sender = spawn_quiet(lab_in(&pair.sender.namespace, &send));
    assert!(sender.wait().unwrap().success());
    assert!(receiver.wait().unwrap().success());
}

fn spawn_quiet(mut command: std::process::Command) -> Child {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().unwrap()
}

/// Starts the command on the sender's host and waits until it is attached.
fn start(pair: &HostPair, arguments: &[&str]) -> Child {
    let mut command = pillion_in(&pair.sender.namespace, arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_attached(child.id());
    child
}

/// Stops a command and returns its output.
fn stop(child: Child) -> Output {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Stops a trial that may have finished already.
fn stop_unless_finished(child: Child) -> Output {
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    child.wait_with_output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|why| panic!("{why}: {}", stderr(output)))
}

fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn interval(estimate: &Value) -> (f64, f64) {
    let ends = &estimate["interval"];
    let bound = |at: usize| ends[at].as_f64().unwrap_or_else(|| panic!("{estimate}"));
    (bound(0), bound(1))
}

#[test]
fn results_are_printed_although_file_is_unwritable() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let subfolder = folder.path().join("there");
    let file = subfolder.join("file");
    let state = folder.path().join("record");
    for command in [&["advise"][..], &["trial", "--state", path_str(&state)]] {
        for option in ["--stats", "--html"] {
            std::fs::create_dir(&subfolder).unwrap();
            let child = start(
                &pair,
                &[command, &["--json", option, path_str(&file)]].concat(),
            );
            std::fs::remove_dir_all(&subfolder).unwrap();
            let output = stop_unless_finished(child);
            assert_eq!(output.status.code(), Some(1), "{command:?} {option}");
            assert!(
                stderr(&output).contains(path_str(&file)),
                "{}",
                stderr(&output)
            );
            assert!(json(&output).is_object());
        }
    }
}

#[test]
fn stats_signals_write_file_without_stopping() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [stats, state] = ["stats", "record"].map(|it| folder.path().join(it));
    for command in [&["advise"][..], &["trial", "--state", path_str(&state)]] {
        let child = start(
            &pair,
            &[command, &["--json", "--stats", path_str(&stats)]].concat(),
        );
        let process = Pid::from_raw(child.id().cast_signed());
        eventually("the file is written for the first time", || stats.exists());
        std::fs::remove_file(&stats).unwrap();
        for request in [Signal::SIGUSR2, Signal::SIGUSR1] {
            kill(process, request).unwrap();
        }
        // Long before the periodic write.
        within(
            Duration::from_secs(5),
            "the file is written on demand",
            || stats.exists(),
        );
        assert!(json(&stop(child)).is_object());
        std::fs::remove_file(&stats).unwrap();
    }
}

/// Also checks commands without a file to write.
#[test]
fn stats_signals_without_stats_file_are_ignored() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    for command in [&["advise"][..], &["trial", "--state", path_str(&state)]] {
        let child = start(&pair, &[command, &["--json"]].concat());
        for request in [Signal::SIGUSR1, Signal::SIGUSR2] {
            kill(Pid::from_raw(child.id().cast_signed()), request).unwrap();
        }
        assert!(json(&stop(child)).is_object());
    }
}

#[test]
fn report_is_written_although_stdout_is_full() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [page, state] = ["page.html", "record"].map(|it| folder.path().join(it));
    for command in [&["advise"][..], &["trial", "--state", path_str(&state)]] {
        let arguments = [command, &["--duration", "1s", "--html", path_str(&page)]].concat();
        let mut command = pillion_in(&pair.sender.namespace, &arguments);
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = stderr(&output);
        assert!(error.contains("write to standard output"), "{error}");
        std::fs::remove_file(&page).unwrap();
    }
}

#[test]
fn advise_and_trial_reject_invalid_options() {
    needs_root!();
    for (arguments, expected) in [
        (&["trial", "--share", "100%"][..], "0.05% to 99.95%"),
        (&["trial", "--share", "0.049%"], "0.05% to 99.95%"),
        (&["trial", "--progress-interval", "0s"], "--quiet"),
        (&["advise", "--nodelay"], "remove the TCP options"),
        (&["advise", "--grace", "4000000ms"], "at most 1h"),
    ] {
        let output = pillion(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn trial_warns_of_other_bundling_process() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = crate::service::ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record.json");
    let trial = [
        "trial",
        "--duration",
        "1s",
        "--dev",
        "lo",
        "--state",
        path_str(&state),
    ];
    let output = pillion_in(&namespace, &trial).output().unwrap();
    let other = format!(
        "pillion: warning: process {} also bundles here (connections with port 7001): segments that \
         it bundles cannot be observed; stop it meanwhile, or select other connections\n",
        service.pid()
    );
    let report = stderr(&output);
    assert_eq!(report.matches(&other).count(), 2, "{report}");
    service.stop();
}
