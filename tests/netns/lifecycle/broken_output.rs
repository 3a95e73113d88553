//! Failures around pillion do not change the command's exit status.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::ChildGuard;
use crate::common::*;

/// Builds a `pillion run` with a statistics file and a shell script.
fn run_with_stats(stats: &Path, script: &str) -> Command {
    let mut run = pillion_in(&namespace_with_loopback(), &["run", "--dev", "lo"]);
    run.arg("--stats")
        .arg(stats)
        .args(["--", "sh", "-c", script]);
    run
}

/// Returns standard errors that cannot be written to: a full device and a closed pipe.
fn broken_stderr() -> [Stdio; 2] {
    let full = File::options().write(true).open("/dev/full");
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    [full.expect("/dev/full").into(), writer.into()]
}

#[test]
fn broken_stderr_preserves_exit_status_and_stats() {
    needs_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    for stderr in broken_stderr() {
        let run = run_with_stats(&stats, "exit 5").stderr(stderr).status();
        assert_eq!(run.expect("it runs").code(), Some(5));
        assert_eq!(read_json(&stats)["connections"], 0);
    }
}

#[test]
fn broken_stderr_preserves_status_2_for_bad_input() {
    needs_root!();
    for stderr in broken_stderr() {
        let words = ["run", "--dev", "no-such-device", "--", "true"];
        let run = pillion_in(&namespace_with_loopback(), &words)
            .stderr(stderr)
            .status();
        assert_eq!(run.expect("it runs").code(), Some(2));
    }
}

#[test]
fn broken_stderr_does_not_fail_attach() {
    needs_root!();
    for stderr in broken_stderr() {
        let mut attach = pillion_in(&namespace_with_loopback(), &["attach", "--dev", "lo"]);
        let mut attach = ChildGuard::spawn(attach.stderr(stderr));
        await_attached(attach.0.id());
        attach.signal(Signal::SIGTERM);
        assert_eq!(attach.wait_exit().code(), Some(0));
    }
}

#[test]
fn broken_stderr_does_not_stop_receiver_from_counting() {
    needs_root!();
    for stderr in broken_stderr() {
        let namespace = namespace_with_loopback();
        let listen = ["--listen", "127.0.0.1:7001", "--streams", "1"];
        let words = [&["traffic", "receive"], &listen[..]].concat();
        let mut receive = lab_in(&namespace, &words);
        let receive = receive.stdout(Stdio::piped()).stderr(stderr);
        let receive = receive.spawn().expect("it runs");
        await_listening(&namespace, 7001);
        let connect = || TcpStream::connect("127.0.0.1:7001");
        let stream = namespace.enter(connect).expect("enter");
        stream
            .expect("a connection")
            .write_all(b"no")
            .expect("sent");
        let received = receive.wait_with_output().expect("the process exits");
        assert_eq!(received.status.code(), Some(1));
        let message = stdout(&received);
        assert!(
            message.contains("1 connection ended too early"),
            "{message}"
        );
    }
}

#[test]
fn stats_write_error_is_reported_with_exit_status_of_command() {
    needs_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path().join("within");
    fs::create_dir(&within).expect("a folder");
    let stats = within.join("stats.json");
    let script = format!("rm -r {}; exit 5", within.display());
    let output = run_with_stats(&stats, &script).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    let message = format!(
        "pillion: warning: write --stats {}: No such file",
        stats.display()
    );
    assert!(stderr(&output).contains(&message), "{}", stderr(&output));
}

#[test]
fn real_time_signal_death_exits_128_plus_number() {
    needs_root!();
    let mut run = super::run(&["bash", "-c", "kill -37 $$"]);
    assert_eq!(run.status().expect("it runs").code(), Some(128 + 37));
}

#[test]
fn file_size_limit_does_not_change_exit_status() {
    needs_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let stderr = File::create(folder.path().join("stderr")).expect("a file");
    let mut run = run_with_stats(&folder.path().join("stats.json"), "exit 3");
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        run.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?));
    }
    let status = run.stderr(stderr).status();
    assert_eq!(status.expect("it runs").code(), Some(3));
}

#[test]
fn full_pipes_do_not_block_exit() {
    needs_root!();
    let (_reader, mut writer) = io::pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = run_with_stats(&folder.path().join("stats.json"), "exit 4");
    let mut run = ChildGuard::spawn(run.stderr(writer));
    assert_eq!(run.wait_exit().code(), Some(4));
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a named pipe");
    let mut run = ChildGuard::spawn(&mut run_with_stats(&pipe, "exit 5"));
    assert_eq!(run.wait_exit().code(), Some(1));
}
