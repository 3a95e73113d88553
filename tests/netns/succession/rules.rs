//! Reloads of the rules during a hand-over.

use super::*;

#[test]
fn rules_that_are_read_again_meanwhile_are_the_successors_as_well() {
    needs_root!();
    let mut waiting = Waiting::begin();
    let rules = waiting.folder.path().join("rules.toml");
    fs::write(rules, "[[rule]]\n[[rule]]\n").unwrap();
    signal(&waiting.old, Signal::SIGHUP);
    assert!(ends_well(&mut waiting.old));
    let successor = Successor(at_work(&waiting.namespace)[0]);
    assert_ne!(successor.0, waiting.successor.0);
    let status = pillion_in(&waiting.namespace, &["status"])
        .output()
        .unwrap();
    assert!(stdout(&status).contains("by 2 rules"), "{status:?}");
    drop(successor);
    eventually("no pillion is left", || at_work(&waiting.namespace).is_empty());
}

/// Returns whether a signal is pending for the process.
fn is_pending(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let pending = lines.find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
    pending >> (signal as u64 - 1) & 1 == 1
}

/// Starts a hand-over, and stops the old process before it reads the request to exit.
fn stop_as_it_is_succeeded(old: &Child) {
    signal(old, Signal::SIGUSR2);
    eventually("a new process starts", || successor_of(old.id()).is_some());
    signal(old, Signal::SIGSTOP);
    let patience = Duration::from_secs(60);
    within(patience, "the new process takes over", || {
        is_pending(old.id(), Signal::SIGTERM)
    });
}

/// The SIGTERM of the abandoned hand-over is read after the reload.
#[test]
fn rules_that_are_read_again_as_the_successor_takes_over_are_the_next_ones() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut attach = pillion_in(&namespace, &config);
    let mut old = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(old.id());
    stop_as_it_is_succeeded(&old);
    fs::write(&rules, "[[rule]]\n[[rule]]\n").unwrap();
    signal(&old, Signal::SIGHUP);
    signal(&old, Signal::SIGCONT);
    assert!(ends_well(&mut old));
    let successor = Successor(at_work(&namespace)[0]);
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    assert!(stdout(&status).contains("by 2 rules"), "{status:?}");
    drop(successor);
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

/// systemd would take the exit of the supposed main process for that of the service.
#[test]
fn who_has_taken_over_is_the_main_process_whatever_the_other_one_says_before_its_end() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let manager = Manager::new();
    let mut old = manager.start(&namespace, &config);
    let main = |pid: u32| format!("MAINPID={pid}");
    manager.hear(&main(old.id()));
    stop_as_it_is_succeeded(&old);
    let successor = Successor(successor_of(old.id()).unwrap());
    manager.hear(&main(successor.0));
    fs::write(&rules, "[[mistake]]\n").unwrap();
    signal(&old, Signal::SIGHUP);
    signal(&old, Signal::SIGCONT);
    manager.hear(&main(old.id()));
    manager.hear(&main(successor.0));
    assert!(ends_well(&mut old));
    drop(successor);
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

/// Child process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The old process waits for data in flight, and the sender never pauses.
#[test]
fn rules_that_are_to_be_read_again_once_the_successor_is_at_work_are_read_by_that() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let mut attach = pillion_in(namespace, &["attach", "--config", rules.to_str().unwrap()]);
    let mut old = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(old.id());
    let address = "10.77.0.2:7001";
    let receive = ["traffic", "receive", "--listen", address, "--streams", "1"];
    let send = [
        ["traffic", "send"],
        ["--to", address],
        ["--itt", "20"],
        ["--duration", "60"],
    ];
    let quiet = |mut command: Command| {
        let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
        Ended(silent.spawn().unwrap())
    };
    let _receiver = quiet(lab_in(&pair.receiver.namespace, &receive));
    await_listening(&pair.receiver.namespace, 7001);
    let _sender = quiet(lab_in(namespace, send.as_flattened()));
    stop_as_it_is_succeeded(&old);
    signal(&old, Signal::SIGCONT);
    eventually("the process exits", || !is_pending(old.id(), Signal::SIGTERM));
    signal(&old, Signal::SIGSTOP);
    fs::write(&rules, "[[rule]]\n[[rule]]\n").unwrap();
    signal(&old, Signal::SIGHUP);
    signal(&old, Signal::SIGCONT);
    assert!(ends_well(&mut old));
    let successor = Successor(at_work(namespace)[0]);
    eventually("the new rules are loaded", || {
        let status = pillion_in(namespace, &["status"]).output().unwrap();
        stdout(&status).contains("by 2 rules")
    });
    drop(successor);
    eventually("no pillion is left", || at_work(namespace).is_empty());
}
