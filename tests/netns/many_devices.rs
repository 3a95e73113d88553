//! Many devices, device churn during the start, and the limit of open files (RLIMIT_NOFILE).

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use pillion_lab::Namespace;

use crate::common::*;
use crate::devices::Attach;
use crate::namespaces::Sleeper;

/// Creates pairs of devices that are up: `a0` and `b0`, `a1` and `b1`, and so on.
fn create_pairs(namespace: &Namespace, pairs: usize) {
    let lines = (0..pairs).map(|pair| {
        format!(
            "link add a{pair} type veth peer name b{pair}\nlink set a{pair} up\n\
             link set b{pair} up\n"
        )
    });
    ip_batch(namespace, &lines.collect::<String>());
}

/// Runs a batch of `ip` commands.
pub fn ip_batch(namespace: &Namespace, lines: &str) {
    let output = namespace.run("ip", &["-batch", "-"], lines).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Adds and deletes devices of a namespace until dropped.
struct DeviceChurn(
    Child,
    Option<thread::JoinHandle<()>>,
    std::sync::Arc<AtomicBool>,
);

impl DeviceChurn {
    fn start(namespace: &Namespace) -> Self {
        let mut ip = namespace.command("ip");
        let mut ip = ip
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = ip.stdin.take().unwrap();
        let stopped = std::sync::Arc::new(AtomicBool::new(false));
        let stop_flag = stopped.clone();
        let writer = thread::spawn(move || {
            for round in 0.. {
                let name = round % 4;
                let lines = format!(
                    "link add c{name} type veth peer name d{name}\nlink set c{name} up\n\
                     link set d{name} up\nlink delete c{name}\n"
                );
                if stop_flag.load(Ordering::Relaxed) || input.write_all(lines.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self(ip, Some(writer), stopped)
    }
}

impl Drop for DeviceChurn {
    fn drop(&mut self) {
        self.2.store(true, Ordering::Relaxed);
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = self.1.take().map(thread::JoinHandle::join);
    }
}

/// Starts thirty times with each hook while about a hundred devices a second appear and vanish.
#[test]
fn device_churn_does_not_prevent_start() {
    needs_root!();
    let namespace = namespace_with_loopback();
    create_pairs(&namespace, 3);
    let _churn = DeviceChurn::start(&namespace);
    for start in 0..30 {
        for hook in ["tcx", "clsact"] {
            let arguments = ["run", "--quiet", "--hook", hook, "--", "true"];
            let output = pillion_in(&namespace, &arguments).output().unwrap();
            assert!(
                output.status.success(),
                "start {start} by {hook}: {}",
                stderr(&output)
            );
        }
    }
}

/// The command starts before all devices are attached, unless the kernel is fast enough. Takes the
/// best of three starts, because other load only slows them.
#[test]
fn many_devices_do_not_delay_command_and_all_get_attached() {
    needs_root!();
    let namespace = namespace_with_loopback();
    create_pairs(&namespace, 40);
    let count = "grep -l ^link_id /proc/$PPID/fdinfo/* | wc -l";
    let starts = (0..3).map(|_| {
        let started = Instant::now();
        let run = pillion_in(&namespace, &["run", "--", "sh", "-c", count]).output();
        let links = stdout(&run.unwrap()).trim().parse::<usize>().unwrap();
        (links, started.elapsed())
    });
    let best = starts.min().unwrap();
    let is_fast = best.0 < 100 || best.1 < Duration::from_millis(1800);
    assert!(best.0 > 2 && is_fast, "{best:?}");
    let mut run = pillion_in(&namespace, &["run", "--", "sleep", "60"]);
    let run = run.stderr(Stdio::piped()).spawn().unwrap();
    let links = || {
        let objects = bpf_objects(run.id());
        objects
            .iter()
            .filter(|it| it.starts_with("link_id"))
            .count()
    };
    eventually("all 80 devices have both links", || links() >= 160);
    send_signal(&run, Signal::SIGTERM);
    let output = run.wait_with_output().unwrap();
    // Only the summary line: all devices existed before the start.
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// Sets the soft and the hard limit of open files for a command.
fn with_file_limit(mut command: Command, soft: u64, hard: u64) -> Command {
    let limit = move || setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(Into::into);
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(limit) };
    command
}

#[test]
fn file_limit_is_raised_and_restored_for_command() {
    needs_root!();
    let namespace = namespace_with_loopback();
    create_pairs(&namespace, 40);
    let script = "ulimit -Sn; ulimit -Hn";
    let run = pillion_in(&namespace, &["run", "--", "sh", "-c", script]);
    let output = with_file_limit(run, 64, 4096).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "64\n4096\n");
    let log = stderr(&output);
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn devices_beyond_file_limit_are_attached_once_possible() {
    needs_root!();
    let namespace = namespace_with_loopback();
    create_pairs(&namespace, 40);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nport = 7777\n").unwrap();
    let options = ["attach", "--config", rules.to_str().unwrap()];
    let attach = with_file_limit(pillion_in(&namespace, &options), 128, 128);
    let mut attach = Attach::spawn(attach, folder);
    assert!(attach.next_line().contains("bundling by 1 rule"));
    let log = attach.next_line();
    assert!(
        log.contains("the limit of open files is 128 (raise the hard limit: "),
        "{log}"
    );
    let links = attach.links();
    assert!((20..160).contains(&links), "{links}");
    // A reload needs descriptors as well.
    send_signal(&attach.process, Signal::SIGHUP);
    let log = attach.next_line();
    assert!(log.contains(": 1 rule; 0 connections covered"), "{log}");
    // Removed devices make room for others.
    ip_batch(&namespace, "link delete a0\nlink delete a1\n");
    let removed: Vec<_> = (0..4).map(|_| attach.next_line()).collect();
    assert!(
        removed
            .iter()
            .all(|line| line.starts_with("pillion: detached from ")),
        "{removed:?}"
    );
    eventually("other devices are attached", || attach.links() == links);
    ip_batch(
        &namespace,
        "link add n0 type veth peer name n1\nlink set n0 up\n",
    );
    // Nothing is logged: there is still no room, and that was reported before.
    send_signal(&attach.process, Signal::SIGHUP);
    let log = attach.next_line();
    assert!(log.contains(": 1 rule; 0 connections covered"), "{log}");
    attach.stop_without_stats();
}

#[test]
fn devices_of_one_namespace_do_not_starve_another() {
    needs_root!();
    let (greedy, modest) = (namespace_with_loopback(), namespace_with_loopback());
    create_pairs(&modest, 1);
    let sleepers = [&greedy, &modest].map(Sleeper::of);
    let own = namespace_with_loopback();
    let [greedy_pid, modest_pid] = [&sleepers[0], &sleepers[1]].map(Sleeper::pid);
    let options = [
        "attach",
        "--all",
        "--netns",
        &greedy_pid,
        "--netns",
        &modest_pid,
    ];
    let attach = with_file_limit(pillion_in(&own, &options), 128, 128);
    let mut attach = Attach::spawn(attach, tempfile::tempdir().unwrap());
    assert!(attach.next_line().contains("bundling all connections on "));
    create_pairs(&greedy, 60);
    // Lines about new devices and about the limit come in any order.
    loop {
        let log = attach.next_line();
        if log.contains(" attached to at most ") {
            assert!(log.contains(&format!(" in {greedy_pid}: ")), "{log}");
            break;
        }
        assert!(log.starts_with("pillion: attached to "), "{log}");
    }
    ip_batch(
        &modest,
        "link add n0 type veth peer name n1\nlink set n0 up\n",
    );
    let expected = format!("pillion: attached to n0 in {modest_pid}");
    loop {
        let log = attach.next_line();
        if log == expected {
            break;
        }
        assert!(log.contains(&greedy_pid), "{log}");
    }
    attach.stop_without_stats();
}
