//! `pillion run`: the command runs unchanged, and its connections are bundled.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill};

use crate::common::*;

/// Builds a `pillion run` with a loopback device and a shell script.
fn run(script: &str) -> Command {
    pillion_in(
        &namespace_with_loopback(),
        &["run", "--dev", "lo", "--", "sh", "-c", script],
    )
}

#[test]
fn exit_status_is_that_of_command() {
    needs_root!();
    assert_eq!(run("exit 0").status().unwrap().code(), Some(0));
    assert_eq!(run("exit 3").status().unwrap().code(), Some(3));
    assert_eq!(run("kill -KILL $$").status().unwrap().code(), Some(128 + 9));
}

#[test]
fn missing_command_exits_127_and_non_executable_126() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let missing = pillion_in(&namespace, &["run", "--dev", "lo", "--", "no-such-command"]).output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(
        stderr(&missing),
        "pillion: error: no-such-command: command not found\n"
    );
    let folder = pillion_in(&namespace, &["run", "--dev", "lo", "--", "/tmp"])
        .output()
        .unwrap();
    assert_eq!(folder.status.code(), Some(126));
    assert_eq!(stderr(&folder).lines().count(), 1);
}

#[test]
fn input_output_and_environment_pass_through() {
    needs_root!();
    let mut child = run("read line; echo \"$line $MARK\"; echo oops >&2")
        .env("MARK", "there")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"here\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "here there\n");
    let stderr = stderr(&output);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert_eq!(lines[0], "oops");
    assert!(lines[1].starts_with("pillion: 0 connections, 0 segments, 0 bundled, 0 redundant"));
}

#[test]
fn terminal_passes_through() {
    needs_root!();
    let inner =
        format!("{PILLION} run --dev lo -- sh -c 'test -t 0 && test -t 1 && echo terminal'");
    let script = namespace_with_loopback()
        .command("script")
        .args(["-qec", &inner, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(stdout(&script).contains("terminal"), "{}", stdout(&script));
}

#[test]
fn signals_reach_command() {
    needs_root!();
    let signals = [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
    ];
    for (signal, name) in signals {
        let script = format!(
            "trap 'kill $sleeping; exit 7' {name}; echo ready; sleep 60 & sleeping=$!; wait"
        );
        let mut command = run(&script);
        // A shell cannot trap signals that were ignored at its start, as SIGINT in the background.
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(move || {
                nix::sys::signal::signal(signal, SigHandler::SigDfl)?;
                Ok(())
            });
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        thread::sleep(Duration::from_millis(100));
        send_signal(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(7), "{name}");
    }
}

#[test]
fn command_under_sudo_runs_as_sudo_caller() {
    needs_root!();
    let ids = "id -u; id -g; id -G; echo $USER; grep CapEff /proc/self/status";
    let output = run(ids)
        .env("SUDO_UID", "65534")
        .env("SUDO_GID", "65534")
        .output()
        .unwrap();
    assert_eq!(
        stdout(&output),
        "65534\n65534\n65534\nnobody\nCapEff:\t0000000000000000\n"
    );
}

#[test]
fn user_option_sets_user_of_command() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let named = |user| {
        pillion_in(
            &namespace,
            &["run", "--dev", "lo", "--user", user, "--", "id", "-un"],
        )
        .output()
        .unwrap()
    };
    assert_eq!(stdout(&named("nobody")), "nobody\n");
    let unknown = named("no-such-user");
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(
        stderr(&unknown),
        "pillion: error: --user: no such user: `no-such-user`\n"
    );
}

#[test]
fn only_connections_of_command_descendants_are_bundled() {
    needs_root!();
    let pair = clean_pair();
    let mut receiver = lab_in(
        &pair.receiver.namespace,
        &[
            "traffic",
            "receive",
            "--listen",
            "10.77.0.2:7777",
            "--streams",
            "4",
            "--json",
        ],
    );
    let receiver = receiver.stdout(Stdio::piped()).spawn().unwrap();
    let sender = format!(
        "{PILLION_LAB} traffic send --to 10.77.0.2:7777 --streams 2 --itt 10ms --duration 2s --seed"
    );
    let mut foreign = pair.sender.namespace.command("sh");
    let mut foreign = foreign
        .args(["-c", &format!("{sender} 2")])
        .spawn()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    // The connections belong to a grandchild.
    let output = pillion_in(
        &pair.sender.namespace,
        &[
            "run",
            "--stats",
            stats.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &format!("({sender} 1); true"),
        ],
    )
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(foreign.wait().unwrap().success());
    let received = receiver.wait_with_output().unwrap();
    assert!(
        received.status.success(),
        "every byte is verified: {}",
        stdout(&received)
    );

    let stats = read_json(&stats);
    assert_eq!(stats["connections"], 2);
    let bundled = stats["outcomes"]["bundled"].as_u64().unwrap();
    assert!(
        bundled > 200,
        "of about 400 messages, {bundled} were bundled"
    );
    let redundant = stats["redundant_bytes"].as_u64().unwrap();
    assert!(redundant >= bundled * 100, "{redundant} redundant bytes");
    let summary = stderr(&output);
    assert!(
        summary.contains(&format!("{bundled} bundled, {redundant} redundant bytes")),
        "{summary}"
    );
}

#[test]
fn tcp_options_are_set_for_command_and_reported_at_exit() {
    needs_root!();
    let pair = clean_pair();
    let mut receiver = receive(&pair, 7003, 2);
    let output = pillion_in(&pair.sender.namespace, &["run", "--linear-timeouts"])
        .args(["--nodelay", "--congestion", "reno", "--", PILLION_LAB])
        .args(["traffic", "send", "--to", "10.77.0.2:7003"])
        .args(["--streams", "2", "--itt", "10ms", "--duration", "0.5s"])
        .output()
        .unwrap();
    assert!(receiver.wait().unwrap().success());
    let message = stderr(&output);
    assert!(message.starts_with("pillion: 2 connections, "), "{message}");
    let expected = "; TCP options set: linear time-outs 2, nodelay 2, congestion control 2\n";
    assert!(message.contains(expected), "{message}");
    let (_, reasons) = message.split_once(expected).unwrap();
    assert!(reasons.starts_with("pillion: not bundled: "), "{message}");
}

#[test]
fn command_continues_plain_when_cleanup_helper_is_killed() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let arguments = ["run", "--dev", "lo", "--", "sh", "-c", "read line; exit 5"];
    let mut run = pillion_in(&namespace, &arguments);
    let run = run.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    await_attached(run.id());
    let links = || {
        let objects = bpf_objects(run.id()).into_iter();
        objects.filter(|it| it.starts_with("link_id")).count()
    };
    let before = links();
    kill(cleanup_helper(run.id()), Signal::SIGKILL).unwrap();
    eventually("the programs are detached", || links() < before);
    run.stdin.take().unwrap().write_all(b"end\n").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let expected = "pillion: error: the cleanup helper (pillion-cleanup) was killed, so that a killed \
                    pillion could leave programs attached: the command continues without bundling; \
                    run it again\n";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
}
