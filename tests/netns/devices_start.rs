//! Devices that appear and vanish while pillion starts, and large numbers of devices.

use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;

use crate::common::*;

/// Creates pairs of devices that are up: `a0` and `b0`, `a1` and `b1`, and so on.
pub fn make_pairs(namespace: &Namespace, pairs: usize) {
    let lines = (0..pairs).map(|pair| {
        format!(
            "link add a{pair} type veth peer name b{pair}\nlink set a{pair} up\n\
             link set b{pair} up\n"
        )
    });
    batch(namespace, &lines.collect::<String>());
}

/// Runs a batch of `ip` commands.
pub fn batch(namespace: &Namespace, lines: &str) {
    let done = namespace.run("ip", &["-batch", "-"], lines).unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
}

/// Adds and deletes devices of a namespace until dropped.
struct Churn(
    Child,
    Option<thread::JoinHandle<()>>,
    std::sync::Arc<AtomicBool>,
);

impl Churn {
    fn begin(namespace: &Namespace) -> Self {
        let mut ip = namespace.command("ip");
        let mut ip = ip
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = ip.stdin.take().unwrap();
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let writer = thread::spawn(move || {
            for round in 0.. {
                let name = round % 4;
                let lines = format!(
                    "link add c{name} type veth peer name d{name}\nlink set c{name} up\n\
                     link set d{name} up\nlink delete c{name}\n"
                );
                if end.load(Ordering::Relaxed) || input.write_all(lines.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self(ip, Some(writer), ended)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.2.store(true, Ordering::Relaxed);
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = self.1.take().map(thread::JoinHandle::join);
    }
}

/// Starts thirty times with each hook while about a hundred devices a second appear and vanish.
#[test]
fn devices_that_come_and_go_do_not_keep_run_from_starting() {
    needs_root!();
    let namespace = namespace_with_loopback();
    make_pairs(&namespace, 3);
    let _churn = Churn::begin(&namespace);
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
fn many_devices_do_not_keep_a_command_waiting_and_are_all_bundled_on_in_the_end() {
    needs_root!();
    let namespace = namespace_with_loopback();
    make_pairs(&namespace, 40);
    let count = "grep -l ^link_id /proc/$PPID/fdinfo/* | wc -l";
    let starts = (0..3).map(|_| {
        let begun = Instant::now();
        let run = pillion_in(&namespace, &["run", "--", "sh", "-c", count]).output();
        let links = stdout(&run.unwrap()).trim().parse::<usize>().unwrap();
        (links, begun.elapsed())
    });
    let best = starts.min().unwrap();
    let enough = best.0 < 100 || best.1 < Duration::from_millis(1800);
    assert!(best.0 > 2 && enough, "{best:?}");
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
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = run.wait_with_output().unwrap();
    // Only the summary line: all devices existed before the start.
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}
